"""Files of named tensors, and models that consist of several such files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import MissingFile, Tensor, Unreadable

KIND: Final = "weight"
ENDING: Final = ".safetensors"
_SHARD: Final = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})((?:\.[^./]+)+)", re.DOTALL)
_MOST: Final = 1 << 20
"""Largest number of tensors that all files of a model may have together."""


class TensorFile(Protocol):
    """The tensors of one file, with unique names."""

    def __len__(self) -> int:
        """Return the number of tensors."""

    def name(self, number: int, /) -> str:
        """Return the name of the tensor with this number."""

    def tensor(self, number: int, /) -> Tensor:
        """Return the tensor with this number. If it has an error, its data is `Unreadable`."""


def address_of(name: str) -> str:
    """Return the address of the tensor `name`. Addresses are unique in a model."""
    return f"tensor:{name}"


def shards_of(path: str) -> list[str]:
    """Return the paths of all shards of a model. `path` is one of them, such as `model-00001-of-00003.gguf`.

    Return only `path` if it is not the path of a shard.
    """
    found = _SHARD.fullmatch(path)
    if found is None:
        return [path]
    before, _, count, ending = found.groups()
    return [f"{before}-{number:05}-of-{count}{ending}" for number in range(1, int(count) + 1)] or [path]


def shard_facts(path: str) -> tuple[str, str, int]:
    """Return a shard's path without number and ending, the path of the first shard, and the shard count.

    A file that is not a shard counts as the only shard of its model.
    """
    found = _SHARD.fullmatch(path)
    if found is None:
        return path.removesuffix(ENDING), path, 1
    before, _, count, ending = found.groups()
    return before + ending.removesuffix(ENDING), f"{before}-00001-of-{count}{ending}", int(count)


def is_first_shard(path: str) -> bool:
    """Return True when `path` is named like the first shard of a model."""
    found = _SHARD.fullmatch(path)
    return found is not None and found[2] == "00001" and found[4].endswith((ENDING, ".gguf"))


def variants_among(paths: Iterable[str]) -> set[str]:
    """Return the `paths` that are variants of another path.

    For example, `model.fp16.safetensors` is a variant of `model.safetensors`.
    """
    stems = {path: shard_facts(path.removesuffix(".index.json"))[0] for path in paths if ENDING in path}
    names = set(stems.values())
    return {path for path, stem in stems.items() if stem.rpartition(".")[0] in names}


def check_count(count: int, path: str) -> None:
    """Raise `LimitExceeded` if `count`, the tensors of a model so far, is above the limit."""
    if count > _MOST:
        raise LimitExceeded(f"The model has more than {_MOST} tensors", path=path)


def check_apart(places: Iterable[tuple[int, int, str]], path: str, *, dense: bool = False) -> None:
    """Raise `CorruptModel` if two of the `places` overlap. A place has a start, an end and a tensor name.

    If `dense` is set, raise `CorruptModel` for a gap between places too.
    """
    end, before = 0, ""
    for start, stop, name in sorted(places):
        if start < end:
            raise CorruptModel(f"The tensors {before[:200]!r} and {name[:200]!r} overlap", start, path)
        if dense and start > end:
            raise CorruptModel(f"There is a gap of {start - end} bytes before the tensor {name[:200]!r}", start, path)
        end, before = stop, name


def joined(
    files: Mapping[str, TensorFile],
    missing: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> Tensors:
    """Return the tensors of all `files`, a map by path, as the tensors of one model.

    `missing` maps the names of missing tensors to file paths; the data of these tensors is `Unreadable`. `metadata` is
    the metadata that the files have in common. Raise `CorruptModel` if two tensors have the same name.
    """
    absent = list((missing or {}).items())
    check_count(sum(map(len, files.values())) + len(absent), next(iter(files), ""))
    if len(files) + len(absent) > 1:
        _check_names(files, [name for name, _ in absent])
    return Tensors.joined([*map(_of_file, files.values()), Tensors.of([_missing(*each) for each in absent])], metadata)


def _of_file(file: TensorFile) -> Tensors:
    def key(number: int) -> tuple[str, str]:
        name = file.name(number)
        return name, address_of(name)

    return Tensors(len(file), file.tensor, key)


def _missing(name: str, path: str) -> Tensor:
    error = MissingFile(f"The tensor {name[:200]!r} should be in the file {path!r}, which is missing or lacks it", path)
    return Tensor(name, address_of(name), None, None, KIND, path, Unreadable(error))


def _check_names(files: Mapping[str, TensorFile], absent: Sequence[str]) -> None:
    seen = set(absent)
    for path, part in files.items():
        for number in range(len(part)):
            name = part.name(number)
            if name in seen:
                raise CorruptModel(f"The tensor {name[:200]!r} is in more than one file of the model", path=path)
            seen.add(name)

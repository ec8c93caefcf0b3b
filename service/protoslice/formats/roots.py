"""The choice of a model's root among its files, which are ranked by name, kind and size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import filterfalse, groupby, islice
from typing import Final

from protoslice.detection.magic import INDEX_ENDING, PIPELINE
from protoslice.formats.coreml import LARGEST_MANIFEST, is_manifest, named_root
from protoslice.formats.weights import is_first_shard, variants_among

_TRIES: Final = 64
"""Largest number of files that are opened to find a root if the caller does not name it."""

_NAMES: Final = (
    "saved_model.cpb",
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "__model__.json",
)
_PACKAGED: Final = "Data/com.apple.CoreML/model.mlmodel"
_ENDINGS: Final = (".cpb", ".onnx", ".pdmodel", ".mlmodel", ".caffemodel", ".index")
_LOOKS: Final = {"proto": 0, "riegeli": 0, "safetensors": 1, "gguf": 1, "text": 2, "json": 2, "table": 2, "paddle": 3}
"""The rank of each kind. Paddle's parameters come after JSON, because a JSON program names the parameters."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be the root."""

    path: str
    kind: str
    """The kind of file, from `detection.detect`."""
    size: int


def manifests_of(files: Iterable[Candidate]) -> list[Candidate]:
    """Return the manifests of Core ML packages among `files`. The content of a manifest names a root."""
    return [file for file in files if is_manifest(file.path) and file.size <= LARGEST_MANIFEST]


def rank(files: Iterable[Candidate], manifests: Mapping[str, bytes]) -> list[Candidate]:
    """Return `files` ordered by how likely each file is the root, the likeliest first.

    Known names come first, then kinds decide (protos first), then sizes (the largest first). Within a model of several
    files, the file that names the others comes first. Variants of a file come after the file.
    `manifests` maps the paths of `manifests_of(files)` to their contents.
    """
    candidates = list(files)
    return _sorted(candidates, _declared(manifests), variants_among(file.path for file in candidates))


def rank_lazily(
    paths: Iterable[str], look: Callable[[str], Candidate], manifests: Mapping[str, bytes]
) -> Iterator[Candidate]:
    """Yield the files in the order of `rank`. They are examined in groups, which begin with the likeliest names."""
    paths, declared = list(paths), _declared(manifests)
    variants = variants_among(paths)

    def named(path: str) -> int:
        return _named(path, path in declared)

    left: list[Candidate] = []
    for _, group in groupby(sorted(paths, key=named), named):
        found = _sorted(map(look, group), declared, variants)
        yield from filter(_counts_by_name, found)
        left += filterfalse(_counts_by_name, found)
    yield from _sorted(left, declared, variants)


def tried(ranked: Iterable[Candidate]) -> Iterator[Candidate]:
    """Return the first 64 `ranked` files, without files that detection refused."""
    return islice((file for file in ranked if file.kind != "refused"), _TRIES)


def _declared(manifests: Mapping[str, bytes]) -> Collection[str | None]:
    return {named_root(path, content) for path, content in manifests.items()}


def _sorted(files: Iterable[Candidate], declared: Collection[str | None], variants: Set[str]) -> list[Candidate]:
    def rank(file: Candidate) -> tuple[int, int, bool, int, int, str]:
        name = _named(file.path, file.path in declared) if _counts_by_name(file) else 100
        leads = (_is_called(file.path, PIPELINE), file.path.endswith(INDEX_ENDING), is_first_shard(file.path), True)
        return name, _looks(file), file.path in variants, leads.index(True), -file.size, file.path

    return sorted(files, key=rank)


def _looks(file: Candidate) -> int:
    return _LOOKS.get(file.kind, len(_LOOKS))


def _counts_by_name(file: Candidate) -> bool:
    """Return True when a file has a kind that a root may have. For other kinds, the name of the file means nothing."""
    return _looks(file) < _LOOKS["paddle"]


def _named(path: str, declared: bool) -> int:
    """Return the rank of a file by its name. The file with the lowest rank is the likeliest root."""
    tests = (
        *(_is_called(path, name) for name in _NAMES),
        declared,
        _is_called(path, _PACKAGED),
        *(path.endswith(ending) for ending in _ENDINGS),
        True,
    )
    return tests.index(True)


def _is_called(path: str, name: str) -> bool:
    return path == name or path.endswith("/" + name)

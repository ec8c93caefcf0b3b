"""Virtual `.safetensors` files of tensors: the header is computed without reading elements."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final

from protoslice import _core
from protoslice.errors import OF_MODELS, InvalidInput, LimitExceeded, Unsupported
from protoslice.sources.ropes import Rope, RopeBuilder, SourceList
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.listing import UniqueNames
from protoslice.tensors.model import Strings, Tensor
from protoslice.tensors.omitted import Omitted
from protoslice.tensors.reading import Converted, ReadableTensor, float_type, read

PADDING: Final = "protoslice.padding."
"""Beginning of the names of entries that fill gaps before aligned tensors, as the format allows none."""
METADATA: Final = "__metadata__"
_PREFIX: Final = 8
"""Bytes before the header, which hold its length."""

_LARGEST_HEAD: Final = 100_000_000  # bytes; the safetensors library refuses larger headers
_ALIGNMENT: Final = 8
"""The elements begin at a multiple of this, in files of any layout."""
_MOST_ALIGNMENT: Final = 1 << 20


_FORMAT: Final = {"format": "pt"}
"""Metadata without which `transformers` opens no file: elements lie as PyTorch's do."""
SHARD_BYTES: Final = 5_000_000_000
"""Elements of a shard, as clients of Hugging Face cut models."""
WHOLE: Final = "model.safetensors"
"""Name of the file of a model that is not cut."""
INDEX: Final = f"{WHOLE}.index.json"
"""Name of the file that says which shard has which tensor."""
_SHARD: Final = re.compile(r"model-([0-9]{5,9})-of-([0-9]{5,9})\.safetensors")


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Layout of tensors in a file."""

    align: int | None = None
    """The offset of each tensor in the file is a multiple of this power of two; None leaves no gaps between tensors."""
    dtype: str | None = None
    """Type that floats and quantized tensors are converted to; None leaves them as they are."""

    @classmethod
    def of(cls, align: int | None, dtype: str | None) -> FileLayout:
        """Return the requested layout; raise `InvalidInput` for an impossible one."""
        if align is not None and (not 1 <= align <= _MOST_ALIGNMENT or align & (align - 1)):
            raise InvalidInput(f"Invalid alignment {align}: use a power of two, at most {_MOST_ALIGNMENT}")
        return cls(align, None if dtype is None else float_type(dtype).name)

    @property
    def facts(self) -> tuple[object, ...]:
        """Facts that distinguish the file from one of the default layout."""
        return () if self == PLAIN_LAYOUT else (self.align, self.dtype)


PLAIN_LAYOUT: Final = FileLayout()
"""Tensors of unchanged types, aligned to their elements."""


class _Group:
    """Tensors of one element width: number, size and part of the header of each, and the joined bytes."""

    def __init__(self, sources: SourceList) -> None:
        self.numbers = array("Q")
        self.sizes = array("Q")
        self.heads: list[str] = []
        self.bytes = RopeBuilder(sources)


class _File:
    """Tensors of one file; the widest elements come first, so that all are aligned to their width."""

    def __init__(self, sources: SourceList, align: int) -> None:
        self._sources = sources
        self._align = align
        self._zeros = Rope.of(_core.Computed.filled(Rope.joined(()), 1, align))
        self._groups: dict[int, _Group] = {}
        self.size = 0
        """Bytes of all elements."""
        self.shown_as: dict[int, str] = {}
        self.left_out: dict[int, str] = {}

    def add(self, number: int, shown: Dtype, reading: ReadableTensor, head: str) -> None:
        """Append a tensor by its number among the labels."""
        if shown is not reading.dtype:
            self.shown_as[number] = reading.dtype.name
        group = self._groups.setdefault(shown.bits, _Group(self._sources))
        group.numbers.append(number)
        group.sizes.append(reading.bytes.size)
        group.heads.append(head)
        group.bytes.add(reading.bytes)
        self.size += reading.bytes.size

    def numbers(self) -> Iterator[int]:
        """Return the numbers of the tensors, in the order of the file."""
        return chain.from_iterable(group.numbers for group in self._ordered())

    def finish(self, names: Sequence[str], metadata: Mapping[str, str]) -> Rope:
        """Return the file; raise `LimitExceeded` for a header above 100 MB."""
        ropes = [rope for group in self._ordered() for rope in group.bytes.ropes()]
        if self._align > 1:
            ropes = self._padded(_core.Rope(ropes))
        return Rope(_core.Rope([self._head(names, metadata), *ropes]), self._sources.listed)

    def _padded(self, elements: _core.Rope) -> list[_core.Rope]:
        """Return the elements of all tensors, each aligned, with zeros in between."""
        builder, at = RopeBuilder(self._sources), 0
        for group in self._ordered():
            for size in group.sizes:
                gap = self._gap(builder.size)
                if gap:
                    builder.add(self._zeros.part(0, gap))
                builder.add(Rope(elements.slice(at, at + size), self._sources.listed))
                at += size
        return builder.ropes()

    def _gap(self, at: int) -> int:
        """Return the bytes from `at` to the next aligned tensor."""
        return -at % self._align

    def _ordered(self) -> list[_Group]:
        return [group for _, group in sorted(self._groups.items(), reverse=True)]

    def _head(self, names: Sequence[str], metadata: Mapping[str, str]) -> bytes:
        entries: list[str] = []
        remarks = {"protoslice.shown_as_bytes": self.shown_as, "protoslice.left_out": self.left_out}
        said = {key: _json({names[at]: text for at, text in each.items()}) for key, each in remarks.items() if each}
        if said := {**metadata, **said}:
            entries.append(f"{_json(METADATA)}:{_json(said)}")
        at, taken = 0, frozenset(names) if self._align > 1 else frozenset[str]()
        for group in self._ordered():
            for number, size, head in zip(group.numbers, group.sizes, group.heads, strict=True):
                gap = self._gap(at)
                if gap:
                    name = f"{PADDING}{names[number]}"
                    while name in taken:
                        name += "'"
                    offsets = f'"data_offsets":[{at},{at + gap}]'
                    entries.append(f'{_json(name)}:{{"dtype":"U8","shape":[{gap}],{offsets}}}')
                at += gap
                entries.append(f'{_json(names[number])}:{{{head},"data_offsets":[{at},{at + size}]}}')
                at += size
        text = ("{" + ",".join(entries) + "}").encode()
        text = text.ljust(len(text) + -(len(text) + _PREFIX) % max(self._align, _ALIGNMENT))
        if len(text) > _LARGEST_HEAD:
            raise LimitExceeded(
                f"The header of this safetensors file would exceed {_LARGEST_HEAD} bytes: ask for fewer tensors"
            )
        return len(text).to_bytes(8, "little") + text


class Safetensors:
    """Builder of one file, or of the shards of a model.

    Dtypes that the format lacks appear as one-byte integers; tensors that cannot be shown or read are left out. The
    metadata of the file names both kinds, and `omitted` names the tensors that were left out.
    """

    omitted: Omitted | None = None
    """Tensors left out, once the file is finished."""

    def __init__(
        self,
        *,
        shard_bytes: int | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
        layout: FileLayout = PLAIN_LAYOUT,
    ) -> None:
        """Take the `metadata` of the model's files, which every file gets.

        `shard_bytes`: most bytes of elements in a shard, unless one tensor has more; None for one file.
        """
        self._align = layout.align or 1
        self._most = shard_bytes
        self._metadata = {**_FORMAT, **metadata}
        self._labels = UniqueNames((METADATA,))
        self._sources = SourceList()
        to = layout.dtype
        self._converted = None if to is None else Converted(DTYPES[to], self._sources)
        self._heads: dict[str, str] = {}
        self._files = [_File(self._sources, self._align)]

    def add(self, tensor: Tensor) -> None:
        """Append a tensor, unless it cannot be shown; this takes a few hundred bytes of memory."""
        number = len(self._labels)
        self._labels.add(tensor)
        try:
            if self._converted is not None and self._converted.takes(tensor):
                reading = self._converted.add(tensor)
                shown = reading.dtype
            else:
                shown, reading = _shown(tensor)
        except OF_MODELS as error:
            self._files[-1].left_out[number] = "STRING" if isinstance(tensor.data, Strings) else str(error)
            return
        if self._most is not None and self._files[-1].size and self._files[-1].size + reading.bytes.size > self._most:
            self._files.append(_File(self._sources, self._align))
        head = f'"dtype":"{shown.safetensors}","shape":{_json(reading.as_bytes.shape)}'
        self._files[-1].add(number, shown, reading, self._heads.setdefault(head, head))

    def finish(self) -> Rope:
        """Return the one file; raise `LimitExceeded` for a header above 100 MB."""
        (file,) = self._files
        return file.finish(self._named(), self._metadata)

    def _named(self) -> list[str]:
        """Return labels of all tensors; record which are left out, and make the converted elements readable."""
        if self._converted is not None:
            self._converted.finish()
        names = list(self._labels.labels())
        left_out = [number for file in self._files for number in file.left_out]
        self.omitted = Omitted.of(len(left_out), (names[number] for number in left_out))
        return names

    def shards(self) -> dict[str, Rope]:
        """Return the files by name, in the form for clients of Hugging Face: none, one, or several and their index."""
        names, count = self._named(), len(self._files)
        if count == 1:
            if next(self._files[0].numbers(), None) is None:
                return {}
            return {WHOLE: self._files[0].finish(names, self._metadata)}
        called = {f"model-{number:05}-of-{count:05}.safetensors": file for number, file in enumerate(self._files, 1)}
        if count * sum(map(len, chain(*self._metadata.items()))) > _LARGEST_HEAD:
            raise LimitExceeded(
                f"The metadata of the model, in each of {count} files, would exceed {_LARGEST_HEAD} bytes: use larger "
                "shards"
            )
        places = {names[number]: path for path, file in called.items() for number in file.numbers()}
        size = sum(file.size for file in self._files)
        index = _json({"metadata": {"total_size": size}, "weight_map": places}).encode()
        found = {path: file.finish(names, self._metadata) for path, file in called.items()}
        return {INDEX: Rope.joined([index]), **found}


def may_be_shard(name: str) -> bool:
    """Return True for a possible name of a file from `Safetensors.shards`."""
    shard = _SHARD.fullmatch(name)
    return name in {WHOLE, INDEX} if shard is None else 1 <= int(shard[1]) <= int(shard[2])


def safetensors(tensors: Iterable[Tensor]) -> Rope:
    """Return a file of `tensors`; see `Safetensors`."""
    file = Safetensors()
    for tensor in tensors:
        file.add(tensor)
    return file.finish()


def _shown(tensor: Tensor) -> tuple[Dtype, ReadableTensor]:
    """Return the dtype under which a tensor appears, and its elements; raise `Unsupported` for strings and C128."""
    if tensor.dtype is not None and tensor.dtype.name in ("STRING", "C128"):
        name = tensor.name
        raise Unsupported(
            f"safetensors files cannot hold {tensor.dtype.name} elements: read tensor {name!r} separately"
        )
    packed = _whole_bytes(tensor)
    reading = read(tensor, form="packed" if packed else "raw", compare=False)
    shown = reading.dtype
    if shown.safetensors is None or (shown.narrow and not packed):
        shown = DTYPES["I8" if shown.signed else "U8"]
    return shown, reading


def _whole_bytes(tensor: Tensor) -> bool:
    """Return True when safetensors packs the dtype of `tensor`, and its elements end at a byte."""
    dtype = tensor.dtype
    if dtype is None or dtype.safetensors is None or not dtype.narrow:
        return False
    return (tensor.size or 0) * dtype.bits % 8 == 0


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

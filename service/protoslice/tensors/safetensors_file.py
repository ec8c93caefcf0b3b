"""Virtual `.safetensors` files. Their headers are computed without reading elements."""

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
"""The name prefix of entries that fill the gaps before aligned tensors. The format does not allow gaps."""
METADATA: Final = "__metadata__"
_PREFIX: Final = 8
"""The number of bytes before the header. They hold the header's length."""

_LARGEST_HEAD: Final = 100_000_000  # bytes; the safetensors library refuses larger headers
_ALIGNMENT: Final = 8
"""The alignment of the first element in files of any layout."""
_MOST_ALIGNMENT: Final = 1 << 20


_FORMAT: Final = {"format": "pt"}
"""The metadata that `transformers` requires of every file. It means that elements have PyTorch's layout."""
SHARD_BYTES: Final = 5_000_000_000
"""The bytes of elements in a shard. Clients of Hugging Face cut models at the same size."""
WHOLE: Final = "model.safetensors"
"""The file name of a model that is not split into shards."""
INDEX: Final = f"{WHOLE}.index.json"
"""The name of the index file, which maps tensors to shards."""
_SHARD: Final = re.compile(r"model-([0-9]{5,9})-of-([0-9]{5,9})\.safetensors")


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of the tensors in a file."""

    align: int | None = None
    """The alignment of each tensor's offset in the file, a power of two; None means no gaps between tensors."""
    dtype: str | None = None
    """The dtype to which floats and quantized tensors are converted; None means no conversion."""

    @classmethod
    def of(cls, align: int | None, dtype: str | None) -> FileLayout:
        """Return the requested layout; raise `InvalidInput` for an invalid alignment or dtype."""
        if align is not None and (not 1 <= align <= _MOST_ALIGNMENT or align & (align - 1)):
            raise InvalidInput(f"Invalid alignment {align}: use a power of two, at most {_MOST_ALIGNMENT}")
        return cls(align, None if dtype is None else float_type(dtype).name)

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts that distinguish this layout from the default layout; empty for the default layout."""
        return () if self == PLAIN_LAYOUT else (self.align, self.dtype)


PLAIN_LAYOUT: Final = FileLayout()
"""The default layout: tensors keep their dtypes, and are aligned to the width of their elements."""


class _Group:
    """The tensors of one element width. Each has a number, a size and a header entry; their bytes are joined."""

    def __init__(self, sources: SourceList) -> None:
        self.numbers = array("Q")
        self.sizes = array("Q")
        self.heads: list[str] = []
        self.bytes = RopeBuilder(sources)


class _File:
    """The tensors of one file. The widest elements come first, so that all elements are aligned to their width."""

    def __init__(self, sources: SourceList, align: int) -> None:
        self._sources = sources
        self._align = align
        self._zeros = Rope.of(_core.Computed.filled(Rope.joined(()), 1, align))
        self._groups: dict[int, _Group] = {}
        self.size = 0
        """The bytes of all elements so far."""
        self.shown_as: dict[int, str] = {}
        self.left_out: dict[int, str] = {}

    def add(self, number: int, shown: Dtype, reading: ReadableTensor, head: str) -> None:
        """Append the tensor whose label has the number `number`."""
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
        """Return the file; raise `LimitExceeded` if its header has more than 100 MB."""
        ropes = [rope for group in self._ordered() for rope in group.bytes.ropes()]
        if self._align > 1:
            ropes = self._padded(_core.Rope(ropes))
        return Rope(_core.Rope([self._head(names, metadata), *ropes]), self._sources.listed)

    def _padded(self, elements: _core.Rope) -> list[_core.Rope]:
        """Return the elements of all tensors. Each tensor is aligned, and zeros fill the gaps."""
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
        """Return the number of bytes from offset `at` to the next aligned offset."""
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
    """A builder of one safetensors file, or of the shards of a model.

    Tensors whose dtype the format lacks appear as one-byte integers. Tensors that cannot be shown or read are left
    out. The metadata of the file lists both kinds of tensors. `omitted` lists only tensors that are left out.
    """

    omitted: Omitted | None = None
    """The tensors that are left out; None before the file is finished, and if no tensor is left out."""

    def __init__(
        self,
        *,
        shard_bytes: int | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
        layout: FileLayout = PLAIN_LAYOUT,
    ) -> None:
        """Set the `metadata` of the model's files, which every written file gets.

        `shard_bytes` is the most bytes of elements in a shard; only a single tensor may exceed it. None means one file.
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
        """Append a tensor, or record that it is left out. Each tensor takes a few hundred bytes of memory."""
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
        """Return the only file; raise `LimitExceeded` if its header has more than 100 MB."""
        (file,) = self._files
        return file.finish(self._named(), self._metadata)

    def _named(self) -> list[str]:
        """Return the labels of all tensors, set `omitted`, and make the converted elements readable."""
        if self._converted is not None:
            self._converted.finish()
        names = list(self._labels.labels())
        left_out = [number for file in self._files for number in file.left_out]
        self.omitted = Omitted.of(len(left_out), (names[number] for number in left_out))
        return names

    def shards(self) -> dict[str, Rope]:
        """Return the files by name, as clients of Hugging Face expect them.

        The result is empty if there are no tensors. It has one file if all tensors fit into one shard. Otherwise it has
        the shards and an index.
        """
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
    """Return True when `Safetensors.shards` may return a file with this name."""
    shard = _SHARD.fullmatch(name)
    return name in {WHOLE, INDEX} if shard is None else 1 <= int(shard[1]) <= int(shard[2])


def safetensors(tensors: Iterable[Tensor]) -> Rope:
    """Return one safetensors file with `tensors`; see `Safetensors`."""
    file = Safetensors()
    for tensor in tensors:
        file.add(tensor)
    return file.finish()


def _shown(tensor: Tensor) -> tuple[Dtype, ReadableTensor]:
    """Return the dtype that the file states for a tensor, and the elements of the tensor.

    Raise `Unsupported` for strings and C128.
    """
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
    """Return True when safetensors packs the dtype of `tensor` and the packed elements fill whole bytes."""
    dtype = tensor.dtype
    if dtype is None or dtype.safetensors is None or not dtype.narrow:
        return False
    return (tensor.size or 0) * dtype.bits % 8 == 0


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

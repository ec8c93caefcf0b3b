"""Virtual `.safetensors` files of tensors: the header is computed without a read of elements."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from protoslice import _core
from protoslice.errors import OF_MODELS, LimitExceeded, Unsupported
from protoslice.formats.bytes import Bytes, RopeBuilder, SourceList
from protoslice.formats.model import Strings, Tensor
from protoslice.formats.outputs.labels import Labels
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.reading import ReadableTensor, read

METADATA: Final = "__metadata__"

_LARGEST_HEAD: Final = 100_000_000  # bytes; the safetensors library refuses larger headers
_ALIGNMENT: Final = 8


class _Group:
    """Tensors of one element width: number, size and part of the header of each, and the joined bytes."""

    def __init__(self, sources: SourceList) -> None:
        self.numbers = array("Q")
        self.sizes = array("Q")
        self.heads: list[str] = []
        self.bytes = RopeBuilder(sources)


class Safetensors:
    """Builder of a file; the widest elements come first, so that all are aligned.

    Dtypes that the format lacks appear as one-byte integers; tensors that cannot be shown or read are left out. The
    metadata of the file names both. With `strict`, such a tensor raises its error in `add` instead of being left out.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._labels = Labels((METADATA,))
        self._sources = SourceList()
        self._groups: dict[int, _Group] = {}
        self._heads: dict[str, str] = {}
        self._shown_as: dict[int, str] = {}
        self._left_out: dict[int, str] = {}

    def add(self, tensor: Tensor) -> None:
        """Append a tensor, at a few hundred bytes of memory; with `strict`, raises if it cannot be shown."""
        number = len(self._labels)
        self._labels.add(tensor)
        try:
            shown, reading = _shown(tensor)
        except OF_MODELS as error:
            if self._strict:
                raise
            self._left_out[number] = "STRING" if isinstance(tensor.data, Strings) else str(error)
            return
        if shown is not reading.dtype:
            self._shown_as[number] = reading.dtype.name
        group = self._groups.setdefault(shown.bits, _Group(self._sources))
        group.numbers.append(number)
        group.sizes.append(reading.bytes.size)
        head = f'"dtype":"{shown.safetensors}","shape":{_json(reading.shape)}'
        group.heads.append(self._heads.setdefault(head, head))
        group.bytes.add(reading.bytes)

    def finish(self) -> Bytes:
        """The file; `LimitExceeded` for a header above 100 MB."""
        groups = [group for _, group in sorted(self._groups.items(), reverse=True)]
        ropes = [rope for group in groups for rope in group.bytes.ropes()]
        return Bytes(_core.Rope([self._head(groups), *ropes]), self._sources.listed)

    def _head(self, groups: Sequence[_Group]) -> bytes:
        names = list(self._labels.labels())
        entries: list[str] = []
        remarks = {"protoslice.shown_as_bytes": self._shown_as, "protoslice.left_out": self._left_out}
        if said := {
            key: _json({names[at]: text for at, text in each.items()}) for key, each in remarks.items() if each
        }:
            entries.append(f"{_json(METADATA)}:{_json(said)}")
        at = 0
        for group in groups:
            for number, size, head in zip(group.numbers, group.sizes, group.heads, strict=True):
                entries.append(f'{_json(names[number])}:{{{head},"data_offsets":[{at},{at + size}]}}')
                at += size
        text = ("{" + ",".join(entries) + "}").encode()
        text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
        if len(text) > _LARGEST_HEAD:
            raise LimitExceeded(
                f"the head of this safetensors file has more than {_LARGEST_HEAD} bytes: ask for fewer tensors"
            )
        return len(text).to_bytes(8, "little") + text


def safetensors(tensors: Iterable[Tensor], *, strict: bool = False) -> Bytes:
    """A file of `tensors`; see `Safetensors`."""
    file = Safetensors(strict=strict)
    for tensor in tensors:
        file.add(tensor)
    return file.finish()


def _shown(tensor: Tensor) -> tuple[Dtype, ReadableTensor]:
    """The dtype under which a tensor appears, and its elements; `Unsupported` for strings and C128."""
    if tensor.dtype is not None and tensor.dtype.name in ("STRING", "C128"):
        name = tensor.name
        raise Unsupported(f"safetensors files have no {tensor.dtype.name} elements: ask for tensor {name!r} by itself")
    packed = _whole_bytes(tensor)
    reading = read(tensor, form="packed" if packed else "raw", compare=False)
    shown = reading.dtype
    if shown.safetensors is None or (shown.narrow and not packed):
        shown = DTYPES["I8" if shown.signed else "U8"]
    return shown, reading


def _whole_bytes(tensor: Tensor) -> bool:
    """True when safetensors packs the dtype of `tensor`, and its elements end at a byte."""
    dtype = tensor.dtype
    if dtype is None or dtype.safetensors is None or not dtype.narrow:
        return False
    return (tensor.size or 0) * dtype.bits % 8 == 0


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

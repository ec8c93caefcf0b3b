"""Tensors as one `.safetensors` file that nobody has written: its head is made of sizes alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from protoslice.errors import OF_MODELS, LimitExceeded, Unsupported
from protoslice.formats.model import Bytes, Strings, Tensor
from protoslice.formats.outputs.labels import labels
from protoslice.formats.tensors.dtypes import DTYPES
from protoslice.formats.tensors.reading import read

__all__ = ["METADATA", "safetensors"]

METADATA: Final = "__metadata__"

_MOST: Final = 100_000_000  # bytes of a head: what the library reads
_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the file."""

    name: str
    dtype: str
    bits: int
    shape: tuple[int, ...]
    bytes: Bytes


@dataclass(slots=True)
class _Remarks:
    """What the file does not say as the model does."""

    shown_as: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def safetensors(tensors: Iterable[Tensor], *, strict: bool = False) -> Bytes:
    """A file of `tensors`, widest elements first, so that all are aligned.

    Types that the format lacks are shown as integers of a byte; what cannot be shown or read is left out. Its metadata
    says so. With `strict` nothing is left out, and what cannot be had is raised.
    """
    listed = list(tensors)
    remarks = _Remarks()
    entries: list[_Entry] = []
    for tensor, name in zip(listed, labels(listed, (METADATA,)), strict=True):
        try:
            entries.append(_entry(tensor, name, remarks))
        except OF_MODELS as error:
            if strict:
                raise
            remarks.left_out[name] = "STRING" if isinstance(tensor.data, Strings) else str(error)
    entries.sort(key=lambda entry: -entry.bits)  # and else as they come, which is mostly as they lie
    return Bytes.joined([_head(entries, remarks), *(entry.bytes for entry in entries)])


def _entry(tensor: Tensor, name: str, remarks: _Remarks) -> _Entry:
    if tensor.dtype is not None and tensor.dtype.name in ("STRING", "C128"):
        raise Unsupported(f"safetensors files have no {tensor.dtype.name} elements: ask for tensor {name!r} by itself")
    packed = _whole_bytes(tensor)
    reading = read(tensor, form="packed" if packed else "raw", compare=False)
    shown = reading.dtype
    if shown.safetensors is None or (shown.narrow and not packed):
        shown = DTYPES["I8" if shown.signed else "U8"]
        remarks.shown_as[name] = reading.dtype.name
    return _Entry(name, str(shown.safetensors), shown.bits, reading.shape, reading.bytes)


def _whole_bytes(tensor: Tensor) -> bool:
    """Whether it is of a type that safetensors files pack into bytes, and fills those."""
    dtype = tensor.dtype
    if dtype is None or dtype.safetensors is None or not dtype.narrow:
        return False
    return (tensor.size or 0) * dtype.bits % 8 == 0


def _head(entries: list[_Entry], remarks: _Remarks) -> bytes:
    said = {"shown_as_bytes": remarks.shown_as, "left_out": remarks.left_out}
    head: dict[str, object] = {}
    if metadata := {f"protoslice.{key}": _json(value) for key, value in said.items() if value}:
        head[METADATA] = metadata
    at = 0
    for entry in entries:
        end = at + entry.bytes.size
        head[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (at, end)}
        at = end
    text = _json(head).encode()
    text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    if len(text) > _MOST:
        raise LimitExceeded(f"the head of this safetensors file has more than {_MOST} bytes: ask for fewer tensors")
    return len(text).to_bytes(8, "little") + text


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

"""Tensors, and slices of them, as bytes of one form or another; nothing is read that is not asked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, Literal, get_args

from protoslice._core import Computed
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, Unsupported
from protoslice.formats import npy
from protoslice.formats.dtypes import Dtype
from protoslice.formats.elements import selected
from protoslice.formats.model import (
    Bytes,
    Data,
    Encoding,
    Fault,
    Filled,
    Later,
    Stored,
    Strided,
    Strings,
    Tensor,
    Tiled,
)
from protoslice.formats.slices import Cut, cut, whole
from protoslice.ropes import Rope
from protoslice.sources import RangeSource

__all__ = ["FORMS", "Form", "Place", "Reading", "place", "read"]

Form = Literal["raw", "packed", "npy", "json"]
"""How a tensor is given out: `raw` elements, one to a byte where they are narrower; as bits; a file; text."""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_VARINTS: Final = frozenset({Encoding.VARINT, Encoding.ZIGZAG, Encoding.PACKED_VARINT})
_LARGEST: Final = (1 << 63) - 1
_MOST_COMPARED: Final = 64 << 20
"""The largest piece of a tensor whose checksum is compared before all of it is given out."""
_MOST_STRINGS: Final = 1 << 20
_MOST_TEXT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """A tensor or a slice of it in some form."""

    bytes: Bytes
    dtype: Dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of a tensor lie as they are given out."""

    file: str
    offset: int
    length: int


def read(tensor: Tensor, slice_: str | None = None, form: str = "raw", *, compare: bool = True) -> Reading:
    """The elements of `tensor`, or those that `slice_` selects, in one of `FORMS`.

    All of a tensor is compared with the checksum that its model has of it, if any, and its varints are counted, unless
    `compare` is false.
    """
    try:
        reading = _read(tensor, slice_, form)
        if compare and slice_ is None:
            _compare(tensor.data)
        if compare and reading.bytes.size and _is_counted(tensor.data):
            # The last byte cannot be told before all varints are counted: whether they fit shows now, and not midway.
            last = reading.bytes.part(reading.bytes.size - 1, reading.bytes.size)
            Rope(last.rope, last.sources).read()
        return reading
    except CorruptModel as error:
        if error.path is None:
            error.path = tensor.address.removeprefix("path:")
        raise


def place(tensor: Tensor, elements: Bytes, files: Mapping[str, RangeSource]) -> Place | None:
    """Where in its file among `files` the `elements` lie that `read` gave, in one piece; None if they do not."""
    source = None if tensor.file is None else files.get(tensor.file)
    match elements.rope.pieces():
        case [(int(number), int(offset), int(length))] if elements.sources[number] is source and source is not None:
            return Place(str(tensor.file), offset, length)
    return None


def _read(tensor: Tensor, slice_: str | None, form: str) -> Reading:
    if form not in FORMS:
        raise InvalidInput(f"{form!r} is not a form of tensors: there are {', '.join(FORMS)}")
    if isinstance(tensor.data, Fault):
        raise tensor.data.error.with_traceback(None)
    dtype, shape = tensor.dtype, tensor.shape
    if dtype is None or shape is None:
        raise CorruptModel(f"nobody knows the type or the shape of tensor {tensor.name!r}", path=tensor.address)
    if prod(shape) * max(dtype.width, 1) > _LARGEST:
        raise LimitExceeded(f"tensor {tensor.name!r} of shape {list(shape)} has more than 2^63 bytes")
    wanted = whole(shape) if slice_ is None else cut(slice_, shape)
    if isinstance(tensor.data, Strings):
        return Reading(_strings(tensor.data, dtype, shape, wanted, form), dtype, wanted.shape)
    if form == "json":
        raise Unsupported(f"json is for tensors of strings; this one is {dtype.name}: ask for raw, packed or npy")
    data = tensor.data.look() if isinstance(tensor.data, Later) else tensor.data
    if form == "packed" and dtype.narrow:
        if slice_ is None and isinstance(data, Stored) and data.encoding is Encoding.PACKED:
            selected(data, dtype, shape, wanted)  # checks that they are as many as they should be
            return Reading(data.bytes, dtype, wanted.shape)
        elements = selected(data, dtype, shape, wanted)
        return Reading(Bytes.of(Computed.packed(elements.rope, elements.sources, dtype.bits)), dtype, wanted.shape)
    elements = selected(data, dtype, shape, wanted)
    if form == "npy":
        elements = Bytes.joined([npy.head(dtype, wanted.shape), elements])
    return Reading(elements, dtype, wanted.shape)


def _is_counted(data: Data) -> bool:
    """Whether the elements are varints, or may be."""
    match data:
        case Stored():
            return data.encoding in _VARINTS
        case Filled():
            return data.first.encoding in _VARINTS
        case Strided():
            return data.stored.encoding in _VARINTS
        case Tiled():
            return any(tile.stored.encoding in _VARINTS for tile in data.tiles)
        case _:
            return isinstance(data, Later)


def _compare(data: Data) -> None:
    pieces = [tile.stored for tile in data.tiles] if isinstance(data, Tiled) else [data]
    for piece in pieces:
        if isinstance(piece, Stored) and piece.compare is not None and piece.bytes.size <= _MOST_COMPARED:
            piece.compare()


def _strings(data: Strings, dtype: Dtype, shape: Sequence[int], wanted: Cut, form: str) -> Bytes:
    if form != "json":
        raise Unsupported(f"a tensor of strings has no {form} form: ask for format=json")
    if wanted.count > _MOST_STRINGS:
        raise LimitExceeded(f"{wanted.count} strings are more than {_MOST_STRINGS} at once: ask for a slice")
    values = data.read()
    if len(values) != prod(shape):
        raise CorruptModel(f"the tensor has {len(values)} strings where its shape wants {prod(shape)}")
    texts: list[str] = []
    length = 0
    for number in _numbers(shape, wanted):
        texts.append(base64.b64encode(values[number]).decode())
        length += len(texts[-1])
        if length > _MOST_TEXT:
            raise LimitExceeded(f"these strings have more than {_MOST_TEXT} characters of text: ask for a slice")
    document = {"dtype": dtype.name, "shape": list(wanted.shape), "values": texts}
    return Bytes.joined([json.dumps(document, separators=(",", ":")).encode()])


def _numbers(shape: Sequence[int], wanted: Cut) -> Iterator[int]:
    """The numbers, row by row, of the elements that are `wanted`."""
    if not wanted.count:
        return iter(())
    ranges: list[range] = []
    stride = 1
    for length, start, step, count in zip(
        reversed(shape), *map(reversed, (wanted.starts, wanted.steps, wanted.counts)), strict=True
    ):
        ranges.append(range(start * stride, (start + count * step) * stride, step * stride))
        stride *= length
    return map(sum, product(*reversed(ranges)))

"""Counting of varint elements, after which their offsets are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from protoslice.formats.model import Data, Fault, Filled, Later, Stored, Strided, Strings, Tiled
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.formats.tensors.elements import VARINTS, worked_out

Placed = Stored | Filled | Strided | Tiled
"""Elements whose location is known."""


def parts_of(data: Data) -> Sequence[Stored]:
    """The contiguous parts of `data`; none as long as their location is unknown."""
    match data:
        case Stored():
            return [data]
        case Filled():
            return [data.first]
        case Strided():
            return [data.stored]
        case Tiled():
            return [tile.stored for tile in data.tiles]
        case Later() | Strings() | Fault():
            return []


def counted(data: Placed, dtype: Dtype, shape: Sequence[int]) -> Placed:
    """`data` with its varints computed to fixed width, after a pass over all of them.

    `CorruptModel` unless there are as many varints as elements.
    """
    match data:
        case Stored():
            return _counted(data, dtype, prod(shape))
        case Filled() if data.first.encoding in VARINTS:
            return _counted(data.first, dtype, prod(shape), repeat=True)
        case Strided():
            return replace(data, stored=_counted(data.stored, dtype, prod(shape)))
        case Tiled():
            tiles = (replace(tile, stored=_counted(tile.stored, dtype, prod(tile.shape))) for tile in data.tiles)
            return Tiled(tuple(tiles))
        case _:
            return data


def _counted(stored: Stored, dtype: Dtype, count: int, *, repeat: bool = False) -> Stored:
    if stored.encoding not in VARINTS:
        return stored
    found = worked_out(stored, dtype, count, repeat=repeat)
    # Reading the last byte counts all varints: a wrong number is reported here, not in the middle of a response.
    found.bytes.read(max(found.bytes.size - 1, 0))
    return found

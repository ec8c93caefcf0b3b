"""A parser of slice expressions, which follow NumPy's basic slicing with positive steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from types import EllipsisType
from typing import Any, Final, TypeAlias

from protoslice.errors import InvalidInput
from protoslice.tensors.dtypes import Dtype

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LONGEST_SLICE: Final = 4096  # characters of a slice

_Item: TypeAlias = int | slice | EllipsisType


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A parsed slice: for each dimension, the first index, the step, and the number of indices."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    shape: tuple[int, ...]
    """The shape of the result. It lacks the dimensions for which the expression has a single index."""

    @property
    def count(self) -> int:
        """The number of selected elements."""
        return prod(self.counts)

    def of(self, array: Any) -> Any:
        """Return the selected elements of `array`, a NumPy array of the whole tensor."""
        ranges = zip(self.starts, self.steps, self.counts, strict=True)
        return array[tuple(slice(at, at + step * count, step) for at, step, count in ranges)].reshape(self.shape)


def whole(shape: Sequence[int]) -> TensorSlice:
    """Return the slice that selects all elements of a tensor of `shape`."""
    return TensorSlice((0,) * len(shape), (1,) * len(shape), tuple(shape), tuple(shape))


def of_blocks(wanted: TensorSlice, dtype: Dtype) -> TensorSlice:
    """Convert a slice of a quantized tensor to a slice of its rows of bytes.

    Raise `InvalidInput` if the slice cuts a block.
    """
    assert dtype.block is not None
    elements, size = dtype.block
    start, step, count = wanted.starts[-1], wanted.steps[-1], wanted.counts[-1]
    if start % elements or count % elements or step != 1:
        raise InvalidInput(
            f"A slice of a {dtype.name} tensor consists of whole blocks: in the last dimension, use multiples of "
            f"{elements} and step 1, or dequantize the tensor"
        )
    starts = (*wanted.starts[:-1], start // elements * size)
    counts = (*wanted.counts[:-1], count // elements * size)
    return TensorSlice(starts, wanted.steps, counts, dtype.bytes_shape(wanted.shape))


def parsed_slice(text: str, shape: Sequence[int]) -> TensorSlice:
    """Return the slice that `text`, such as `0:128,:,-3,::2`, describes for `shape`.

    Raise `InvalidInput` if `text` is malformed or does not fit `shape`.
    """
    items = _spread(_parse(text), shape)
    ranges = [_range(item, length, place) for place, (item, length) in enumerate(zip(items, shape, strict=True))]
    left = tuple(len(found) for found, item in zip(ranges, items, strict=True) if isinstance(item, slice))
    starts, steps, counts = (tuple(part) for part in zip(*map(_parts, ranges), strict=True)) if ranges else ((),) * 3
    return TensorSlice(starts, steps, counts, left)


def _parse(text: str) -> list[_Item]:
    if len(text) > _LONGEST_SLICE:
        raise InvalidInput(f"The slice is too long: at most {_LONGEST_SLICE} characters")
    return [_item(part, place) for place, part in enumerate(text.split(","))] if text.strip() else []


def _item(text: str, place: int) -> _Item:
    parts = [part.strip() for part in text.split(":")]
    if parts == ["..."]:
        return ...
    if len(parts) > 3 or not all(_NUMBER.fullmatch(part) or (not part and len(parts) > 1) for part in parts):
        raise _bad(place, f"{text.strip()[:40]!r} is not an index, a range such as start:stop:step, or '...'")
    numbers = [int(part) if part else None for part in parts]
    if len(numbers) == 1 and numbers[0] is not None:
        return numbers[0]
    start, stop, step = (*numbers, None)[:3]
    if step is not None and step < 1:
        raise _bad(place, f"Invalid step {step}: use at least 1")
    return slice(start, stop, step)


def _spread(items: list[_Item], shape: Sequence[int]) -> list[int | slice]:
    """Return one item per dimension. Full slices replace `...` and missing items."""
    wild = [place for place, item in enumerate(items) if item is ...]
    if len(wild) > 1:
        raise _bad(wild[1], "A slice may contain '...' only once")
    if len(items) - len(wild) > len(shape):
        raise _bad(len(shape), f"Too many indices: the tensor has {len(shape)} dimensions (shape {list(shape)})")
    at = wild[0] if wild else len(items)
    rest: list[_Item] = [slice(None)] * (len(shape) - len(items) + len(wild))
    return [item for item in [*items[:at], *rest, *items[at + 1 :]] if not isinstance(item, EllipsisType)]


def _range(item: int | slice, length: int, place: int) -> range:
    if isinstance(item, slice):
        return range(*item.indices(length))
    if not -length <= item < length:
        raise _bad(place, f"Index {item} is out of range: the dimension has length {length}")
    return range(item % length, item % length + 1)


def _parts(found: range) -> tuple[int, int, int]:
    # The parts are normalized: an empty range could start outside of the dimension, and a single index have any step.
    count = len(found)
    return (found.start if count else 0, found.step if count > 1 else 1, count)


def _bad(place: int, what: str) -> InvalidInput:
    return InvalidInput(f"Slice, item {place + 1}: {what}")

"""Functions that print tensors like NumPy arrays. Of long dimensions, only the first and last elements are shown."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from operator import mul
from typing import Any, Final

from protoslice.errors import Unsupported
from protoslice.tensors.arrays import as_array
from protoslice.tensors.dtypes import DTYPES

_EDGE: Final = 3
_WHOLE: Final = 1000
"""Maximum number of elements of a tensor that is shown completely."""
_WIDTH: Final = 78
_FORMATS: Final = {
    "F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I",
    "U16": "H", "U8": "B", "BOOL": "?", "C64": "ff", "C128": "dd",
}  # fmt: skip
Read = Callable[[str], bytes]
"""A function that takes a slice as text and returns the selected elements as raw bytes."""


def array_lines(dtype: str, shape: Sequence[int], read: Read) -> Iterator[str]:
    """Yield the lines that show a tensor of `shape`. `read` is called only for the elements that are shown."""
    shown = [_places(length) if prod(shape) > _WHOLE else [(0, length)] for length in shape]
    cells: dict[tuple[int, ...], str] = {}
    for boxes in product(*shown):
        text = ",".join(f"{start}:{stop}" for start, stop in boxes)
        places = product(*(range(start, stop) for start, stop in boxes))
        cells.update(zip(places, map(_text, _numbers(dtype, read(text))), strict=True))
    wide = max(map(len, cells.values()), default=0)
    indices = [[place for start, stop in boxes for place in range(start, stop)] for boxes in shown]
    yield from _lines(cells, indices, shape, (), wide)


def reader_of(data: bytes, shape: Sequence[int]) -> Read:
    """Return a function that reads slices such as `0:3,5:8` from elements in memory."""
    width = len(data) // max(prod(shape), 1)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]

    def read(text: str) -> bytes:
        ranges = [range(*map(int, part.split(":"))) for part in text.split(",") if part]
        numbers = (sum(map(mul, at, strides)) for at in product(*ranges))
        return b"".join(data[width * number : width * (number + 1)] for number in numbers)

    return read


def _places(length: int) -> list[tuple[int, int]]:
    """Return the ranges of indexes that are shown if a dimension has this `length`."""
    return [(0, length)] if length <= 2 * _EDGE else [(0, _EDGE), (length - _EDGE, length)]


def _numbers(dtype: str, data: bytes) -> Sequence[Any]:
    code = _FORMATS.get(dtype) or ("b" if DTYPES[dtype].signed else "B" if dtype.startswith("U") else None)
    if code is not None:
        found = [part for parts in struct.iter_unpack(f"<{code}", data) for part in parts]
        if len(code) == 1:
            return found
        return [complex(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]
    try:
        numbers: list[Any] = as_array(data, dtype, (len(data) // DTYPES[dtype].width,)).astype(float).tolist()
    except Unsupported as error:
        raise Unsupported(f"Cannot print elements of type {dtype}: {error.message}") from error
    return numbers


def _text(value: Any) -> str:
    if isinstance(value, complex):
        return f"{value.real:.4g}{value.imag:+.4g}j"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _lines(
    cells: dict[tuple[int, ...], str],
    indices: Sequence[Sequence[int]],
    shape: Sequence[int],
    at: tuple[int, ...],
    wide: int,
) -> Iterator[str]:
    depth = len(at)
    if depth == len(shape):
        yield cells[at]
        return
    places = indices[depth]
    if depth == len(shape) - 1:
        words = [cells[(*at, place)].rjust(wide) for place in places]
        if len(places) < shape[depth]:
            words.insert(_EDGE, "...")
        yield from _wrapped(words, depth + 1)
        return
    for number, place in enumerate(places):
        block = list(_lines(cells, indices, shape, (*at, place), wide))
        block[0] = ("[" if not number else " ") + block[0]
        block[1:] = [" " + line for line in block[1:]]
        if number == len(places) - 1:
            block[-1] += "]"
        yield from block
        if number == _EDGE - 1 and len(places) < shape[depth]:
            yield " ..."
    if not places:
        yield "[]"


def _wrapped(words: Sequence[str], indent: int) -> Iterator[str]:
    """Yield the lines of one row in brackets, which is wrapped if it is longer than a line."""
    line, begin = "[", True
    for word in words:
        if not begin and len(line) + 1 + len(word) + indent > _WIDTH:
            yield line
            line, begin = " ", True
        line += word if begin else f" {word}"
        begin = False
    yield line + "]"

"""Access to the elements of tensors in PLAIN encoding. Other encodings are converted on the fly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from protoslice import _core
from protoslice._core import Computed
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import Dtype, element_count, shape_text
from protoslice.tensors.model import Data, Deferred, Encoding, Filled, Stored, Strided, Strings, Tile, Tiled, Unreadable
from protoslice.tensors.slices import TensorSlice, whole

LEAST: Final = 1 << 30
"""The number of bytes that every request may compute, even if it reads few stored bytes."""
PER_STORED: Final = 64
"""The number of bytes that a request may compute for each stored byte that it reads."""


class OverBudget(LimitExceeded):
    """The error for a request that would compute too many elements."""


def check_budget(computed: int, stored: int, remedy: str) -> None:
    """Raise `OverBudget` if `computed` bytes are too many to compute from `stored` bytes.

    The limit is 1 GiB, or 64 times the stored bytes if that is more. `remedy` is the part of the error message that
    suggests another request.
    """
    most = max(LEAST, PER_STORED * stored)
    if computed > most:
        raise OverBudget(
            f"Reading this would decode {stored} stored bytes into {computed} bytes, over the limit of {most} "
            f"per request: {remedy}"
        )


def stored_bytes(data: Rope) -> int:
    """Return the number of stored bytes from which `data` is made. The bytes behind a computed source count once."""
    sources: dict[int, int] = {}
    plain = data.size
    if not any(isinstance(source, _core.Computed) for source in data.sources):
        return plain
    for piece in data.core.pieces():
        if isinstance(piece, tuple) and isinstance(source := data.sources[piece[0]], _core.Computed):
            plain -= piece[2]
            sources[piece[0]] = source.stored
    return plain + sum(sources.values())


def distinct_bytes(data: Rope) -> int:
    """Return the size in bytes of the part of `data` that comes before the repetitions of one element.

    The repetitions continue up to the end. Return the whole size if no element repeats.
    """
    if data.core.piece_count == 1:
        (piece,) = data.core.pieces()
        if isinstance(piece, tuple) and isinstance(source := data.sources[piece[0]], _core.Computed):
            return min(data.size, max(0, source.distinct - piece[1]))
    return data.size


VARINTS: Final = frozenset({Encoding.VARINT, Encoding.ZIGZAG, Encoding.PACKED_VARINT})
_DIGITS: Final = {Encoding.VARINT: "plain", Encoding.ZIGZAG: "zigzag"}


def selected(data: Stored | Filled | Strided | Tiled, dtype: Dtype, shape: Sequence[int], cut: TensorSlice) -> Rope:
    """Return the elements that `cut` selects from a tensor, in row-major order.

    Contiguous PLAIN elements are not copied. Raise `CorruptModel` if the size of `data` does not match `shape`.
    """
    match data:
        case Stored():
            return _of_rows(_plain(data, dtype, prod(shape)), dtype, shape, cut)
        case Filled():
            return _of_rows(_filled(data.first, dtype, prod(shape)), dtype, shape, cut)
        case _ if not cut.count:
            return Rope.joined(())
        case Strided():
            elements = _plain(data.stored, dtype, prod(shape))
            return _gathered([((0,) * len(shape), tuple(shape), data.strides, elements)], dtype, shape, cut)
        case Tiled():
            return _of_tiles(data.tiles, dtype, shape, cut)


def decode_varints(stored: Stored, dtype: Dtype, count: int, *, repeat: bool = False) -> Stored:
    """Return `stored` with its varints replaced by a source that decodes them. Other encodings are unchanged.

    The source remembers offsets after one pass over the varints. If `repeat` is set, the last element is repeated until
    there are `count` elements. Raise `Unsupported` for repeated bit-packed elements.
    """
    match stored.encoding:
        case Encoding.VARINT | Encoding.ZIGZAG:
            digits = "truth" if dtype.name == "BOOL" else _DIGITS[stored.encoding]
            elements = Computed.varints(stored.bytes, digits, dtype.width, count, repeat=repeat)
            return Stored(Rope.of(elements), Encoding.BYTE_PER_ELEMENT, stored.compare)
        case Encoding.PACKED_VARINT if repeat:
            raise Unsupported(
                "A tensor of bit-packed elements has too few values; repeating its last value is not supported "
                "for this type"
            )
        case Encoding.PACKED_VARINT:
            stream = Computed.varints(stored.bytes, "plain", 1, -(-count * dtype.bits // 8))
            return Stored(Rope.of(stream), Encoding.PACKED, stored.compare)
    return stored


def _plain(stored: Stored, dtype: Dtype, count: int) -> Rope:
    """Return all `count` elements of `stored` in PLAIN encoding."""
    stored = decode_varints(stored, dtype, count)
    packed = stored.encoding is Encoding.PACKED and dtype.narrow
    _check_size(stored, -(-count * dtype.bits // 8) if packed else count * dtype.width)
    match stored.encoding:
        case Encoding.PACKED if packed:
            return Rope.of(Computed.unpacked(stored.bytes, dtype.bits, count, signed=dtype.signed))
        case Encoding.BYTE_PER_ELEMENT if dtype.narrow:
            return _repeated(stored.bytes, dtype, lambda part: Computed.cleaned(part, dtype.bits, signed=dtype.signed))
        case Encoding.BIG_ENDIAN if dtype.part > 1:
            return Rope.of(Computed.swapped(stored.bytes, dtype.part))
    return stored.bytes


def _filled(first: Stored, dtype: Dtype, count: int) -> Rope:
    """Return `count` elements: the elements of `first`, and then repetitions of its last element."""
    if first.encoding in VARINTS:
        return _plain(decode_varints(first, dtype, count, repeat=True), dtype, count)
    bits = dtype.bits if first.encoding is Encoding.PACKED else 8 * dtype.width
    elements = _plain(first, dtype, first.bytes.size * 8 // bits)
    if elements.size >= count * dtype.width:
        _check_size(Stored(elements), count * dtype.width)
        return elements
    return Rope.of(Computed.filled(elements, dtype.width, count))


def _repeated(elements: Rope, dtype: Dtype, compute: Callable[[Rope], Computed]) -> Rope:
    """Return the result of `compute` for each of `elements`. An element that repeats up to the end is computed once."""
    first = min(elements.size, distinct_bytes(elements) + dtype.width)
    found = Rope.of(compute(elements.part(0, first)))
    if first == elements.size:
        return found
    return Rope.of(Computed.filled(found, dtype.width, elements.size // dtype.width))


def _check_size(stored: Stored, need: int) -> None:
    if stored.bytes.size != need:
        raise CorruptModel(f"The tensor has {stored.bytes.size} bytes, but its elements take {need}")


def _of_rows(elements: Rope, dtype: Dtype, shape: Sequence[int], cut: TensorSlice) -> Rope:
    """Return the part of the row-major `elements` that `cut` selects."""
    if (run := _run(shape, cut)) is not None:
        return elements.part(run[0] * dtype.width, run[1] * dtype.width)
    gathered = _gathered([((0,) * len(shape), tuple(shape), _strides(shape), elements)], dtype, shape, cut)
    distinct = distinct_bytes(elements)
    if distinct == elements.size:
        return gathered
    # Selected elements keep their order. All elements after the first repeated element are equal to it.
    before = _selected_before(-(-distinct // dtype.width), shape, cut)
    if before >= cut.count:
        return gathered
    one = elements.part(elements.size - dtype.width, elements.size)
    first = Rope.joined([gathered.part(0, before * dtype.width), one])
    return Rope.of(Computed.filled(first, dtype.width, cut.count))


def _selected_before(number: int, shape: Sequence[int], cut: TensorSlice) -> int:
    """Return how many of the elements that `cut` selects come before element `number` in row-major order."""
    if number >= prod(shape):
        return cut.count
    before, left = 0, cut.count
    for stride, start, step, count in zip(_strides(shape), cut.starts, cut.steps, cut.counts, strict=True):
        index, number = divmod(number, stride)
        left //= count
        lower = min(count, max(0, -(-(index - start) // step)))  # selected indices below `index`
        before += lower * left
        if lower == count or start + lower * step != index:
            break
    return before


def _of_tiles(tiles: Sequence[Tile], dtype: Dtype, shape: Sequence[int], cut: TensorSlice) -> Rope:
    if any(not 0 <= number < 1 << 63 for tile in tiles for number in (*tile.start, *tile.shape)):
        raise CorruptModel("A part of the tensor has an invalid position or size")
    parts = [
        (tile.start, tile.shape, _strides(tile.shape), _plain(tile.stored, dtype, prod(tile.shape))) for tile in tiles
    ]
    gathered = _gathered(parts, dtype, shape, cut)  # checks that the tiles cover the tensor
    if cut == whole(shape) and (runs := _whole_runs(tiles, shape)) is not None:
        return Rope.joined(parts[number][-1] for number in runs)
    return gathered


def _whole_runs(tiles: Sequence[Tile], shape: Sequence[int]) -> list[int] | None:
    """Return the numbers of the tiles in the order of their elements.

    Return None unless each tile is one contiguous run of the tensor.
    """
    strides = _strides(shape)
    order: list[tuple[int, int]] = []
    for number, tile in enumerate(tiles):
        run = _run(shape, TensorSlice(tile.start, (1,) * len(shape), tile.shape, tile.shape))
        if run is None:
            return None
        order.append((sum(at * stride for at, stride in zip(tile.start, strides, strict=True)), number))
    return [number for _, number in sorted(order)]


def _run(shape: Sequence[int], cut: TensorSlice) -> tuple[int, int] | None:
    """Return the range of row-major element numbers that `cut` selects; None if they are not contiguous."""
    if not cut.count:
        return 0, 0
    inside = True  # `cut` selects all elements of the inner dimensions
    first = 0
    for length, start, step, count, stride in zip(
        reversed(shape), *map(reversed, (cut.starts, cut.steps, cut.counts, _strides(shape))), strict=True
    ):
        if count > 1 and not (inside and step == 1):
            return None
        inside = inside and count == length
        first += start * stride
    return first, first + cut.count


def _gathered(
    tiles: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int], Rope]],
    dtype: Dtype,
    shape: Sequence[int],
    cut: TensorSlice,
) -> Rope:
    return Rope.of(Computed.gathered(tiles, shape, dtype.width, (cut.starts, cut.steps, cut.counts)))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major strides of `shape`, in elements."""
    strides = [1]
    for length in reversed(shape[1:]):
        strides.append(strides[-1] * length)
    return tuple(reversed(strides)) if shape else ()


Located = Stored | Filled | Strided | Tiled
"""The types of `Data` whose elements have a known location."""


def parts_of(data: Data) -> Sequence[Stored]:
    """Return the contiguous parts of `data`, or none if their location is not known yet."""
    match data:
        case Stored():
            return [data]
        case Filled():
            return [data.first]
        case Strided():
            return [data.stored]
        case Tiled():
            return [tile.stored for tile in data.tiles]
        case Deferred() | Strings() | Unreadable():
            return []


def count_varints(data: Located, dtype: Dtype, shape: Sequence[int]) -> Located:
    """Return `data` with varints converted to elements of fixed width. This call reads all varints.

    Raise `CorruptModel` unless there are as many varints as elements.
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
    found = decode_varints(stored, dtype, count, repeat=repeat)
    # Reading the last byte counts all varints. The error for a wrong count then comes before the response begins.
    found.bytes.read(max(found.bytes.size - 1, 0))
    return found


def stored_size(dtype: Dtype, count: int, encoding: Encoding) -> int | None:
    """Return the size in bytes of `count` elements; None for varints, whose size depends on the values."""
    match encoding:
        case Encoding.PACKED:
            return -(-count * dtype.bits // 8)
        case Encoding.PLAIN | Encoding.BYTE_PER_ELEMENT | Encoding.BIG_ENDIAN:
            return count * dtype.width
        case _:
            return None


def checked(stored: Stored, dtype: Dtype, shape: Sequence[int]) -> Stored:
    """Return `stored` unchanged; raise `CorruptModel` if its size does not match `dtype` and `shape`."""
    count = element_count(shape if dtype.block is None else dtype.bytes_shape(shape))
    due = stored_size(dtype, count, stored.encoding)
    if due is None or due == stored.bytes.size:
        return stored
    raise CorruptModel(
        f"A tensor of {dtype.name} and shape {shape_text(shape)} takes {due} bytes, but there are {stored.bytes.size}"
    )

"""Every way to write an array is read back, whole and in slices, as bytes and as `.npy` files."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.protos.writer import varint as unsigned_varint
from tests.support.tensors import content, stored, tensor

from protoslice import _core
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.sources.files import BytesSource, FileSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.listing import row
from protoslice.tensors.model import (
    Data,
    Deferred,
    Encoding,
    Filled,
    Stored,
    Strided,
    Strings,
    Tensor,
    Tile,
    Tiled,
    Unreadable,
)
from protoslice.tensors.reading import Place, npy_head, place, read
from protoslice.tensors.slices import TensorSlice, parsed_slice, whole

Array = np.ndarray[Any, np.dtype[Any]]

NUMPY: dict[str, Any] = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F6_E2M3FN": ml_dtypes.float6_e2m3fn, "F4_E2M1": ml_dtypes.float4_e2m1fn, "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "I4": ml_dtypes.int4, "I2": ml_dtypes.int2, "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "U4": ml_dtypes.uint4, "U2": ml_dtypes.uint2, "BOOL": "?", "C64": "<c8", "C128": "<c16",
}  # fmt: skip
INTEGERS = [name for name in NUMPY if name[0] in "IU"]


def varint(value: int) -> bytes:
    """Return `value` as protobuf writes an int64."""
    return unsigned_varint(value & (1 << 64) - 1)


def zigzag(value: int) -> bytes:
    """Return `value` as protobuf writes a sint64."""
    return varint((value << 1) ^ (value >> 63))


def patterns(array: Array, name: str) -> list[int]:
    """Return the elements as numbers of as many bits as their type has."""
    bits = DTYPES[name].bits
    data, width = np.ascontiguousarray(array).tobytes(), array.dtype.itemsize
    numbers = (int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width))
    return [number & ((1 << bits) - 1) for number in numbers]


def as_bits(array: Array, name: str) -> bytes:
    """Return the elements as a stream of bits."""
    bits = DTYPES[name].bits
    stream = sum(number << (bits * place) for place, number in enumerate(patterns(array, name)))
    return stream.to_bytes(-(-bits * array.size // 8), "little")


def values(array: Array) -> list[int]:
    """Return the elements as Python's numbers."""
    return [int(number) for number in array.reshape(-1).tolist()]


def one_by_one(array: Array, name: str) -> bytes:
    """Return the expected bytes: little-endian, narrow elements in one byte each, sign-extended."""
    if DTYPES[name].narrow and DTYPES[name].signed:
        return np.ascontiguousarray(array).astype("i1").tobytes()
    return np.ascontiguousarray(array).tobytes()


def random_array(name: str, shape: Sequence[int], seed: int) -> Array:
    """Return an array whose elements have random valid bits."""
    dtype = np.dtype(NUMPY[name])
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if name == "BOOL":
        return rng.integers(0, 2, count).astype("?").reshape(shape)
    data = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    if DTYPES[name].narrow:
        data &= (1 << DTYPES[name].bits) - 1
    array: Array = data.view(dtype).reshape(shape)
    return array


def big_endian(array: Array) -> bytes:
    """Return the elements with reversed bytes."""
    width = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    return np.ascontiguousarray(array).reshape(-1).view(f"<u{width}").byteswap().tobytes()


def loose(array: Array, name: str) -> bytes:
    """Return narrow elements in a byte each, with random upper bits."""
    return bytes(
        number | (37 * place << DTYPES[name].bits & 0xFF) for place, number in enumerate(patterns(array, name))
    )


def tiled(array: Array, name: str, seed: int) -> Tiled:
    """Return the array cut into a grid of boxes, out of order."""
    rng = np.random.default_rng(seed)
    boxes: list[tuple[tuple[int, ...], Array]] = [((0,) * array.ndim, array)]
    for axis in range(array.ndim):
        places = sorted({0, *map(int, rng.integers(0, array.shape[axis] + 1, 2))})
        boxes = [
            ((*start[:axis], start[axis] + low, *start[axis + 1 :]), part)
            for start, box in boxes
            for low, part in zip(places, np.split(box, places[1:], axis=axis), strict=True)
        ]
    rng.shuffle(boxes)
    return Tiled(tuple(Tile(start, box.shape, stored(one_by_one(box, name))) for start, box in boxes))


def strided(array: Array, name: str, seed: int) -> Strided:
    """Return the array written in another order of its dimensions."""
    order = np.random.default_rng(seed).permutation(array.ndim)
    written = np.ascontiguousarray(array.transpose(order))
    strides = [0] * array.ndim
    for rank, axis in enumerate(order):
        strides[axis] = int(np.prod(written.shape[rank + 1 :]))
    return Strided(stored(one_by_one(written, name)), tuple(strides))


def ways(array: Array, name: str, seed: int) -> dict[str, Data]:
    """Return all ways to write the array that its type has."""
    dtype = DTYPES[name]
    found: dict[str, Data] = {
        "plain": stored(one_by_one(array, name)),
        "loose": stored(loose(array, name) if dtype.narrow else array.tobytes(), Encoding.BYTE_PER_ELEMENT),
        "packed": stored(as_bits(array, name), Encoding.PACKED),
        "tiled": tiled(array, name, seed),
        "strided": strided(array, name, seed),
        "later": Deferred(lambda: stored(one_by_one(array, name))),
        "pieces": Stored(in_pieces(one_by_one(array, name), seed)),
    }
    if not dtype.narrow:
        found["big"] = stored(big_endian(array), Encoding.BIG_ENDIAN)
    if name in (*INTEGERS, "BOOL"):
        found["varints"] = stored(b"".join(map(varint, values(array))), Encoding.VARINT)
        found["packed varints"] = stored(b"".join(map(varint, as_bits(array, name))), Encoding.PACKED_VARINT)
    if name in INTEGERS and DTYPES[name].signed:
        found["zigzag"] = stored(b"".join(map(zigzag, values(array))), Encoding.ZIGZAG)
    return found


def in_pieces(data: bytes, seed: int) -> Rope:
    """Return `data` in several sources."""
    at = sorted(np.random.default_rng(seed).integers(0, len(data) + 1, 2))
    return Rope.joined(Rope.of(BytesSource(data[: at[0]])) if not n else data[at[0] :] for n in range(2))


ITEMS: list[Callable[[int, np.random.Generator], str]] = [
    lambda length, rng: ":",
    lambda length, rng: str(rng.integers(-length, length)) if length else ":",
    lambda length, rng: f"{rng.integers(-length - 1, length + 2)}:{rng.integers(-length - 1, length + 2)}",
    lambda length, rng: f"{rng.integers(-length - 1, length + 2)}::{rng.integers(1, 4)}",
]


def random_slice(shape: Sequence[int], seed: int) -> str:
    """Return a slice of a tensor of `shape`."""
    rng = np.random.default_rng(seed)
    return ",".join(ITEMS[rng.integers(len(ITEMS))](length, rng) for length in shape)


@settings(max_examples=200)
@given(st.sampled_from(sorted(NUMPY)), st.lists(st.integers(0, 7), max_size=4), st.integers(0, 1 << 32))
def test_every_way_to_write_an_array_is_read_back(name: str, shape: list[int], seed: int) -> None:
    array = random_array(name, shape, seed)
    text = random_slice(shape, seed)
    key = eval(f"np.index_exp[{text}]", {"np": np}) if text else ()
    expected = array[key]
    for way, data in ways(array, name, seed).items():
        subject = tensor(data, name, shape)
        assert content(read(subject).bytes) == one_by_one(array, name), way
        reading = read(subject, text)
        assert reading.shape == expected.shape, way
        assert content(reading.bytes) == one_by_one(expected, name), way
        if DTYPES[name].narrow:
            assert content(read(subject, text, "packed").bytes) == as_bits(expected, name), way
            assert content(read(subject, form="packed").bytes) == as_bits(array, name), way


@settings(max_examples=40)
@given(st.sampled_from(sorted(NUMPY)), st.integers(0, 1 << 32), st.data())
def test_every_range_of_a_reading_is_that_part_of_it(name: str, seed: int, data: st.DataObject) -> None:
    array = random_array(name, (5, 3, 7), seed)
    for form in ["raw", "npy", *(["packed"] if DTYPES[name].narrow else [])]:
        for subject in ways(array, name, seed).values():
            reading = read(tensor(subject, name, array.shape), random_slice(array.shape, seed), form).bytes
            rope, all_of_it = reading, content(reading)
            start = data.draw(st.integers(0, rope.size))
            stop = data.draw(st.integers(start, rope.size))
            assert rope.read(start, stop - start) == all_of_it[start:stop]


@settings(max_examples=40)
@given(st.sampled_from(sorted(NUMPY)), st.integers(0, 9), st.integers(0, 40), st.integers(0, 1 << 32), st.data())
def test_the_last_element_stands_for_all_that_are_missing(
    name: str, first: int, more: int, seed: int, data: st.DataObject
) -> None:
    some = random_array(name, (first,), seed)
    array = np.concatenate([some, np.full(more, some[-1] if first else 0, some.dtype)])
    for way, written in ways(some, name, seed).items():
        if not isinstance(written, Stored) or way in ("packed", "packed varints"):
            continue
        reading = read(tensor(Filled(written), name, array.shape)).bytes
        assert content(reading) == one_by_one(array, name), way
        start = data.draw(st.integers(0, reading.size))
        assert reading.read(start) == one_by_one(array, name)[start:]


def test_truths_are_true_whatever_varint_says_so() -> None:
    data = stored(b"\x00\x01\x02\x80\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Encoding.VARINT)
    assert content(read(tensor(data, "BOOL", [5])).bytes) == b"\x00\x01\x01\x01\x01"


def test_narrow_zigzags_have_32_bits() -> None:
    data = stored(varint((1 << 34) | 3), Encoding.ZIGZAG)
    assert content(read(tensor(data, "I32", [1])).bytes) == (-2).to_bytes(4, "little", signed=True)


@pytest.mark.parametrize("count", [0, 1, 70_000])
def test_ranges_far_into_many_varints(count: int) -> None:
    array = np.random.default_rng(count).integers(-(1 << 62), 1 << 62, count) >> np.arange(count) % 63
    data = stored(b"".join(map(varint, values(array))), Encoding.VARINT)
    found = read(tensor(data, "I64", [count])).bytes
    rope = found
    for start in {0, min(3, count), count * 4, count * 4 + 7 * (count > 1), max(0, count * 8 - 9)}:
        stop = min(start + 100, found.size)
        assert rope.read(start, stop - start) == array.tobytes()[start:stop]


def test_plain_elements_stay_where_they_lie() -> None:
    source = BytesSource(bytes(200))
    subject = tensor(Stored(Rope.of(source, 20, 20 + 96)), "I32", [4, 6], file="a")
    assert place(subject, read(subject).bytes, {"a": source}) == Place("a", 20, 96)
    assert place(subject, read(subject, "1:3").bytes, {"a": source}) == Place("a", 44, 48)
    assert place(subject, read(subject, "2,1:3").bytes, {"a": source}) == Place("a", 72, 8)
    assert place(subject, read(subject, ":,1:3").bytes, {"a": source}) is None
    assert place(subject, read(subject).bytes, {"a": BytesSource(bytes(200))}) is None


def test_tiles_of_whole_rows_stay_where_they_lie() -> None:
    sources = [BytesSource(bytes([number]) * 24) for number in range(3)]
    tiles = [Tile((2 * number, 0), (2, 3), Stored(Rope.of(sources[number]))) for number in (1, 0, 2)]
    reading = read(tensor(Tiled(tuple(tiles)), "F32", [6, 3])).bytes
    assert [reading.sources[number] for number, _, _ in reading.core.pieces()] == sources
    assert content(reading) == b"".join(source.read(0, 24) for source in sources)


def test_a_file_is_opened_once_for_all_that_read_it(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "x"
    path.write_bytes(bytes(range(200)))

    def times_open() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{number}") == str(path) for number in os.listdir("/proc/self/fd"))

    with FileSource(path) as file:
        before = times_open()
        subject = tensor(Stored(Rope.of(file), Encoding.BIG_ENDIAN), "U16", [100])
        readings = [read(subject, f"{number}::2").bytes for number in range(100)]
        assert [content(reading)[:1] for reading in readings[:3]] == [b"\x01", b"\x03", b"\x05"]
        assert times_open() == before + 1


def test_no_memory_goes_by_the_size_of_a_tensor() -> None:
    huge = 1 << 60
    filled = read(tensor(Filled(stored(b"\x01\x02")), "U16", [huge])).bytes
    rope = filled
    assert rope.size == 2 * huge
    assert rope.read(2 * huge - 3, 3) == b"\x02\x01\x02"
    column = read(tensor(Filled(stored(b"\x07")), "U8", [1 << 30, 1 << 30]), ":,::1024").bytes
    assert column.read((1 << 50) - 5, 5) == b"\x07" * 5


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (stored(bytes(7)), "F32", [2]),
        (stored(bytes(9)), "F32", [2]),
        (stored(b"", Encoding.PACKED), "I4", [1]),
        (stored(bytes(3), Encoding.PACKED), "I4", [4]),
        (stored(bytes(6), Encoding.BIG_ENDIAN), "I32", [1]),
        (stored(b"\x01\x01", Encoding.VARINT), "I32", [3]),
        (stored(b"\x01\x01", Encoding.VARINT), "I32", [1]),
        (stored(b"\x01\x81", Encoding.VARINT), "I32", [1]),
        (stored(b"\xff" * 10 + b"\x01", Encoding.VARINT), "I32", [1]),
        (stored(b"\x80" * 300_000 + b"\x01", Encoding.VARINT), "I32", [1]),
        (Filled(stored(bytes(3))), "U16", [9]),
        (Filled(stored(bytes(8))), "U16", [3]),
        (Filled(stored(b"\x01" * 4, Encoding.VARINT)), "U16", [3]),
        (Strided(stored(bytes(4)), (1, 3)), "U8", [2, 2]),
        (Strided(stored(bytes(4)), (0, 1)), "U8", [2, 2]),
        (Tiled(()), "U8", [1]),
        (Tiled((Tile((0,), (2,), stored(b"ab")), Tile((1,), (2,), stored(b"ab")))), "U8", [4]),
        (Tiled((Tile((0,), (2,), stored(b"ab")), Tile((3,), (1,), stored(b"a")))), "U8", [4]),
        (Tiled((Tile((0,), (5,), stored(b"abcde")),)), "U8", [4]),
        (Tiled((Tile((0, 0), (4, 1), stored(b"abcd")),)), "U8", [4]),
        (Tiled((Tile((-1,), (5,), stored(b"abcde")),)), "U8", [4]),
        (Tiled((Tile(((1 << 64) - 1,), (5,), stored(b"abcde")),)), "U8", [4]),
    ],
)  # fmt: skip
def test_what_does_not_fit_its_shape_is_refused_with_the_address(data: Data, dtype: str, shape: list[int]) -> None:
    with pytest.raises(CorruptModel) as caught:
        read(tensor(data, dtype, shape))
    assert caught.value.path == "x"


def test_strings_are_text_in_base64() -> None:
    words = [bytes([65 + number]) * number for number in range(6)]
    subject = tensor(Strings(lambda: words), "STRING", [2, 3])
    reading = read(subject, ":,::2", "json")
    assert reading.shape == (2, 2)
    answer = json.loads(content(reading.bytes))
    assert answer == {
        "dtype": "STRING",
        "shape": [2, 2],
        "values": [base64.b64encode(words[number]).decode() for number in (0, 2, 3, 5)],
    }
    assert json.loads(content(read(subject, "0:0", "json").bytes))["values"] == []
    with pytest.raises(Unsupported, match="format=json"):
        read(subject)


def test_strings_without_number_are_not_listed() -> None:
    huge = tensor(Strings(lambda: range(1 << 40)), "STRING", [1 << 40])  # type: ignore[arg-type, return-value]
    with pytest.raises(LimitExceeded, match="ask for a slice"):
        read(huge, form="json")
    long = tensor(Strings(lambda: [bytes(1 << 20)] * 100), "STRING", [100])
    with pytest.raises(LimitExceeded, match="ask for a slice"):
        read(long, form="json")
    assert read(long, "3", "json").shape == ()


def test_the_facts_of_a_tensor_are_json() -> None:
    subject = tensor(bytes(4), "F32", [1])
    assert json.loads(content(read(subject, form="json").bytes)) == json.loads(json.dumps(row(subject)))
    fault = tensor(Unreadable(NotFound("No file")), "F32", [1])
    assert json.loads(content(read(fault, form="json").bytes))["problem"] == "No file"


def test_what_cannot_be_had_says_why() -> None:
    fault = tensor(Unreadable(NotFound("No file")), "F32", [1])
    for _ in range(2):
        with pytest.raises(NotFound, match="No file"):
            read(fault)
    with pytest.raises(Unsupported, match="use format=json"):
        read(tensor(Strings(lambda: [b""]), "STRING", [1]), form="npy")
    with pytest.raises(InvalidInput, match="Unknown tensor format"):
        read(tensor(bytes(4), "F32", [1]), form="tar")
    with pytest.raises(LimitExceeded, match="2\\^63"):
        read(tensor(Filled(stored(b"")), "F32", [1 << 40, 1 << 40]))
    with pytest.raises(CorruptModel, match="is unknown"):
        read(Tensor("x", "path:x", None, None, "initializer", None, stored(b"")))


def test_computed_bytes_nest_and_say_what_is_missing() -> None:
    inner = _core.Computed.cleaned(Rope.of(BytesSource(b"\xf7\x08\xff")), 4, signed=True)
    assert inner.read(0, 3) == b"\x07\xf8\xff"
    outer = _core.Computed.packed(Rope.of(inner), 4)
    assert outer.read(0, outer.size) == b"\x87\x0f"
    for offset, length in [(0, 3), (3, 0), ((1 << 64) - 1, 5)]:
        with pytest.raises(CorruptModel, match="are needed"):
            outer.read(offset, length)


# Slices in words mean the same as in NumPy.

NUMBERS = st.integers(-7, 7)
SLICES = st.builds(
    lambda start, stop, step: f"{start}:{stop}{step}",
    *([st.one_of(st.just(""), NUMBERS.map(str))] * 2),
    st.one_of(st.just(""), st.just(":"), st.integers(1, 8).map(":{}".format)),
)
SLICES_ITEMS = st.one_of(NUMBERS.map(str), SLICES, st.just(":"), st.just("..."))
SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)


def selected(array: np.ndarray, found: TensorSlice) -> np.ndarray:
    """Return the elements of `array` that `found` selects."""
    parts = zip(found.starts, found.steps, found.counts, strict=True)
    indices = [start + step * np.arange(count) for start, step, count in parts]
    return array[np.ix_(*indices)].reshape(found.shape) if indices else array


@given(SHAPES, st.lists(SLICES_ITEMS, max_size=5), st.sampled_from([",", " , "]))
def test_it_selects_what_numpy_selects(shape: tuple[int, ...], items: list[str], comma: str) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    text = comma.join(items)
    key = eval(f"np.index_exp[{text}]", {"np": np}) if text else ()
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(InvalidInput, match=r"Slice, item \d"):
            parsed_slice(text, shape)
        return
    found = selected(array, parsed_slice(text, shape))
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("text", "item", "words"),
    [
        ("x", 1, "is not an index"),
        (":,", 2, "is not an index"),
        ("0:1:2:3", 1, "is not an index"),
        ("1_0", 1, "is not an index"),
        ("٣", 1, "is not an index"),
        ("1 2", 1, "is not an index"),
        ("..", 1, "is not an index"),
        (":,::0", 2, "Invalid step 0"),
        ("::-1", 1, "Invalid step -1"),
        ("9" * 20, 1, "is not an index"),
        (":,:,:", 3, "the tensor has 2 dimensions"),
        ("...,...", 2, "only once"),
        (":,5", 2, "Index 5 is out of range: the dimension has length 5"),
        ("-4", 1, "Index -4 is out of range: the dimension has length 3"),
    ],
)
def test_what_it_refuses(text: str, item: int, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"Slice, item {item}: .*{words}"):
        parsed_slice(text, (3, 5))


def test_a_slice_has_a_bound() -> None:
    with pytest.raises(InvalidInput, match="at most 4096 characters"):
        parsed_slice(":," * 4000, (3,))


def test_numbers_of_64_bits() -> None:
    length = (1 << 63) - 1
    assert parsed_slice(f"{length - 1}", (length,)) == TensorSlice((length - 1,), (1,), (1,), ())
    assert parsed_slice(f"-{length}::2", (length,)).counts == (1 << 62,)


def test_whole_is_everything() -> None:
    assert whole((2, 3)) == parsed_slice("...", (2, 3)) == parsed_slice("", (2, 3))
    assert whole(()) == parsed_slice("...", ()) == TensorSlice((), (), (), ())


# NumPy loads our `.npy` files, also as memory maps.


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 3, 2), (1,) * 32])
@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.numpy])
def test_numpy_loads_what_it_has_a_type_for(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    dtype = np.dtype(DTYPES[name].numpy)
    array = (np.arange(int(np.prod(shape))) % 2).astype(dtype).reshape(shape)
    data = content(read(tensor(array.tobytes(), name, shape), form="npy").bytes)
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    for mode in (None, "r") if array.size else (None,):
        loaded = np.load(path, mmap_mode=mode)
        assert loaded.dtype == dtype
        assert loaded.shape == shape
        assert np.array_equal(loaded, array)
    assert (len(data) - array.nbytes) % 64 == 0


@pytest.mark.parametrize(
    ("name", "shown"), [("BF16", "<u2"), ("F8_E5M2", "|u1"), ("F6_E2M3FN", "|u1"), ("F4_E2M1", "|u1")]
)
def test_floats_that_numpy_lacks_are_shown_as_their_bits(name: str, shown: str, tmp_path: Path) -> None:
    real = {"BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F6_E2M3FN": ml_dtypes.float6_e2m3fn}
    array = np.array([1.5, -2, 0], real.get(name, ml_dtypes.float4_e2m1fn))
    (tmp_path / "x.npy").write_bytes(content(read(tensor(array.tobytes(), name, [3]), form="npy").bytes))
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype == np.dtype(shown)
    assert np.array_equal(loaded.view(array.dtype), array)


def test_narrow_integers_are_integers_of_a_byte(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(
        content(read(tensor(stored(b"\xf8\x07", Encoding.PACKED), "I4", [2, 2]), form="npy").bytes)
    )
    assert np.load(tmp_path / "x.npy").tolist() == [[-8, -1], [7, 0]]


def test_a_slice_as_a_file(tmp_path: Path) -> None:
    array = np.arange(24, dtype="<f4").reshape(4, 6)
    (tmp_path / "x.npy").write_bytes(content(read(tensor(array.tobytes(), "F32", [4, 6]), "::2,-1", "npy").bytes))
    assert np.array_equal(np.load(tmp_path / "x.npy"), array[::2, -1])


def test_many_dimensions_get_the_longer_head() -> None:
    head = npy_head(DTYPES["F32"], (1,) * 30_000)
    assert head[6] == 2
    assert len(head) % 64 == 0
    assert int.from_bytes(head[8:12], "little") == len(head) - 12


def test_the_head_of_a_huge_tensor() -> None:
    subject = tensor(Filled(stored(b"")), "U8", [1 << 31, 1 << 31])
    assert read(subject, form="npy").bytes.size == (1 << 62) + 128

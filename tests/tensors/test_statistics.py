"""Statistics of tensors equal NumPy's; dequantized elements equal those of the `gguf` package."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import MODELS, folder
from tests.support.tensors import in_slices, stored, tensor

from protoslice import open_model
from protoslice.concurrency import finish
from protoslice.errors import InvalidInput, LimitExceeded, Unsupported
from protoslice.facts import TensorStatistics
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Encoding, Strings, Tensor
from protoslice.tensors.reading import ReadableTensor, converted, dequantized, float_type, read
from protoslice.tensors.statistics import SAMPLE, statistics_job, statistics_text

ML: dict[str, Any] = {
    "BF16": "bfloat16", "F8_E3M4": "float8_e3m4", "F8_E4M3": "float8_e4m3", "F8_E4M3FN": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E4M3B11FNUZ": "float8_e4m3b11fnuz", "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0FNU": "float8_e8m0fnu", "F6_E2M3FN": "float6_e2m3fn",
    "F6_E3M2FN": "float6_e3m2fn", "F4_E2M1": "float4_e2m1fn",
}  # fmt: skip
NARROW = {"I4": "i1", "I2": "i1", "I1": "i1", "U6": "u1", "U4": "u1", "U3": "u1", "U2": "u1", "U1": "u1"}
"""For each type that NumPy lacks, a type with the same bytes if each element takes one byte."""
NUMERIC = [name for name, dtype in DTYPES.items() if dtype.bits and dtype.block is None]
RANDOM = np.random.default_rng(3)


def statistics(tensor: Tensor, slice_: str | None = None, sample: int | None = None) -> TensorStatistics:
    return finish(statistics_job(tensor, slice_, sample))


def kind_of(name: str) -> Any:
    """Return the dtype by which NumPy reads elements in PLAIN."""
    return np.dtype(getattr(ml_dtypes, ML[name])) if name in ML else np.dtype(DTYPES[name].numpy or NARROW[name])


def bits_of(name: str, count: int) -> bytes:
    """Return elements of every bit pattern that the type may have in PLAIN, including NaN and infinities."""
    dtype = DTYPES[name]
    if name == "BOOL":
        return RANDOM.integers(0, 2, count, "u1").tobytes()
    if dtype.narrow:
        low, high = (-(1 << dtype.bits - 1), 1 << dtype.bits - 1) if dtype.signed else (0, 1 << dtype.bits)
        return RANDOM.integers(low, high, count).astype("i1" if dtype.signed else "u1").tobytes()
    return RANDOM.bytes(count * dtype.width)


def compare(found: TensorStatistics, array: Any) -> None:
    """Compare `found` with NumPy's results for `array`."""
    with np.errstate(all="ignore"):
        values = np.abs(array.astype("c16")) if array.dtype.kind == "c" else array
        values = values.astype("f8").reshape(-1)
    finite = values[np.isfinite(values)]
    assert (found.zeros, found.nans) == (int((finite == 0).sum()), int(np.isnan(values).sum()))
    assert found.looked_at == values.size == finite.size + found.nans + found.infinities
    if not finite.size:
        assert (found.min, found.max, found.mean, found.deviation, found.histogram) == (None,) * 5
        return
    extremes = (finite.min(), finite.max())
    # Magnitudes of complex numbers may differ in their last bit.
    assert (found.min, found.max) == (pytest.approx(extremes, rel=1e-15) if array.dtype.kind == "c" else extremes)
    with np.errstate(all="ignore"):
        for ours, theirs in ((found.mean, finite.mean()), (found.deviation, finite.std())):
            if ours is not None and np.isfinite(theirs):
                assert abs(ours - theirs) <= 1e-9 * np.abs(finite).max()
    bins = found.histogram
    assert bins is not None
    assert len(bins.counts) <= 64
    quotients = finite / bins.width
    quotients[(quotients == 0) & (finite < 0)] = -1e-9  # a quotient below all floats
    scaled = np.floor(quotients) - bins.start / bins.width
    assert np.bincount(scaled.astype(int), minlength=len(bins.counts)).tolist() == list(bins.counts)


@pytest.mark.parametrize("name", NUMERIC)
def test_every_type_is_summed_up_as_numpy_does(name: str) -> None:
    data = bits_of(name, 5000)
    compare(statistics(tensor(data, name, (50, 100))), np.frombuffer(data, kind_of(name)))


@given(st.data(), st.integers(0, 4000), st.floats(-1e9, 1e9), st.floats(1e-9, 1e9))
@settings(max_examples=40, deadline=None)
def test_any_floats_fall_into_the_right_bins(drawn: st.DataObject, count: int, middle: float, spread: float) -> None:
    values = np.random.default_rng(count).standard_normal(count) * spread + middle
    some = drawn.draw(st.lists(st.floats(-1e150, 1e150).filter(lambda value: not 0 < abs(value) < 1e-150), max_size=8))
    values = np.concatenate([values, np.array([*some, np.nan, np.inf])])
    compare(statistics(tensor(values.astype("<f8").tobytes(), "F64", values.shape)), values)


def test_elements_count_however_they_are_written() -> None:
    values = np.arange(-300, 700, dtype="<i8")
    swapped = stored(values.byteswap().tobytes(), Encoding.BIG_ENDIAN)
    compare(statistics(tensor(swapped, "I64", (10, 100))), values)
    zigzag = b"".join(_varint((int(v) << 1) ^ (int(v) >> 63)) for v in values)
    compare(statistics(tensor(stored(zigzag, Encoding.ZIGZAG), "I64", (1000,))), values)
    nibbles = stored(bytes([0x21, 0x43]), Encoding.PACKED)
    compare(statistics(tensor(nibbles, "U4", (4,))), np.array([1, 2, 3, 4], "u1"))


def test_a_slice_is_summed_up_by_itself() -> None:
    array = RANDOM.standard_normal((40, 30)).astype("<f4")
    found = statistics(tensor(array.tobytes(), "F32", array.shape), "3:40:5,-7:")
    assert (found.shape, found.elements) == ((8, 7), 56)
    compare(found, array[3:40:5, -7:])


def test_a_sample_is_spread_from_the_first_element_to_the_last() -> None:
    array = np.arange(1_000_000, dtype="<i4")
    found = statistics(tensor(array.tobytes(), "I32", array.shape), sample=64_000)
    assert (found.looked_at, found.elements) == (64_000, 1_000_000)
    assert (found.min, found.max) == (0, 999_999)
    assert found.mean == pytest.approx(499_999.5)
    compare(statistics(tensor(array.tobytes(), "I32", array.shape), sample=0), array)
    assert statistics(tensor(array.tobytes(), "I32", array.shape), sample=3).looked_at == 3


class Endless(BytesSource):
    """Endless zeros whose reads are recorded."""

    def __init__(self, size: int) -> None:
        super().__init__(b"")
        self.size = size
        self.most = self.sum = 0

    def read(self, offset: int, length: int, /) -> bytes:
        """See `RangeSource.read`."""
        self.most, self.sum = max(self.most, length), self.sum + length
        return bytes(length)


def test_a_tensor_of_any_size_costs_a_sample_in_slices() -> None:
    source = Endless(1 << 45)
    huge = tensor(stored(b""), "F32", (1 << 43,))
    huge = replace(huge, data=replace(stored(b""), bytes=Rope.of(source)))
    slices, found = in_slices(statistics_job(huge))
    assert slices > 7
    assert source.sum == SAMPLE * 4
    assert source.most <= 1 << 20
    assert found.looked_at == SAMPLE


def test_what_has_no_statistics_is_refused() -> None:
    words = tensor(Strings(lambda: [b"a"]), "STRING", (1,))
    with pytest.raises(Unsupported, match="strings"):
        statistics(words)
    for sample in (-1, 1 << 63):
        with pytest.raises(InvalidInput, match="sample"):
            statistics(tensor(bytes(4), "F32", (1,)), sample=sample)
    with pytest.raises(LimitExceeded):
        statistics(tensor(bytes(4), "F32", (1 << 62,)))


def test_json_has_no_number_that_json_lacks() -> None:
    values = np.array([np.nan, np.inf, 1.7e308, -1.7e308], "<f8")
    told = json.loads(statistics_text(statistics(tensor(values.tobytes(), "F64", (4,)))), parse_constant=pytest.fail)
    assert (told["nans"], told["infinities"], told["deviation"]) == (1, 1, None)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# Dequantized tensors equal those of the `gguf` package bit for bit; the corpus holds the digests.

CASE = "gguf_types"
TENSORS: list[dict[str, Any]] = json.loads((MODELS / CASE / "expected.json").read_text())["tensors"]
DEQUANTIZED = [each for each in TENSORS if "sha256_dequantized" in each]


def content(reading: ReadableTensor) -> bytes:
    return reading.bytes.read()


@pytest.mark.parametrize("each", DEQUANTIZED, ids=lambda each: each["name"])
def test_elements_are_those_of_the_format_s_own_library(each: dict[str, Any]) -> None:
    with open_model(folder(CASE), "a.gguf") as model:
        tensor = dequantized(model.tensor(each["name"]))
        assert (tensor.dtype is not None and tensor.dtype.name, list(tensor.shape or ())) == ("F32", each["shape"])
        assert hashlib.sha256(content(read(tensor))).hexdigest() == each["sha256_dequantized"]
        for part in each.get("slices_dequantized", []):
            found = read(tensor, part["slice"])
            assert list(found.shape) == part["shape"]
            assert hashlib.sha256(content(found)).hexdigest() == part["sha256"], part["slice"]


def test_all_types_that_must_be_dequantized_are_in_the_corpus() -> None:
    assert {each["dtype"] for each in DEQUANTIZED} >= {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "F16", "BF16"}


def test_types_that_cannot_be_decoded_say_so() -> None:
    with open_model(folder(CASE), "a.gguf") as model:
        with pytest.raises(Unsupported, match="IQ2_XXS elements cannot be converted"):
            dequantized(model.tensor("q.IQ2_XXS"))
        assert dequantized(model.tensor("t.I32")).dtype is model.tensor("t.I32").dtype


def test_slices_of_blocks_are_whole_blocks() -> None:
    with open_model(folder(CASE), "a.gguf") as model:
        for wrong in (":,1:33", ":,::2", ":,0:31", "0,5"):
            with pytest.raises(InvalidInput, match="multiples of 32"):
                model.read("q.Q4_0", wrong)
        assert model.look("q.Q4_0", "1,32:96").shape == (64,)
        assert model.read("q.Q4_0", "1,32:96").size == 36
        assert model.read("q.Q4_0", ":,5:5").size == 0


def test_tensors_are_converted_to_other_floats() -> None:
    import ml_dtypes
    import numpy as np

    with open_model(folder(CASE), "a.gguf") as model:
        whole = np.frombuffer(content(read(dequantized(model.tensor("q.Q6_K")))), "<f4")
        for name, kind in (("F16", np.float16), ("bf16", ml_dtypes.bfloat16), ("F64", np.float64)):
            found = content(read(converted(model.tensor("q.Q6_K"), float_type(name))))
            assert found == whole.astype(kind).tobytes(), name
    with pytest.raises(InvalidInput, match="use one of F64, F32, F16, BF16"):
        float_type("I8")

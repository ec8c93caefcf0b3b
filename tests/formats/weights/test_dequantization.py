"""Dequantized tensors are, bit for bit, those of the `gguf` package, whose digests the corpus holds."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from tests.support.golden import MODELS, folder

from protoslice import open_model
from protoslice.errors import InvalidInput, Unsupported
from protoslice.tensors.conversion import converted, dequantized, float_type
from protoslice.tensors.reading import ReadableTensor, read

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

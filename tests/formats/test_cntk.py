"""CNTK: arrays in dictionaries, called as their variables, shaped as NumPy shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.tensors import opened

from protoslice.errors import CorruptModel, Unsupported
from protoslice.schema import bundled
from protoslice.tensors.model import Unreadable

DICTIONARY: Any = bundled().message_class("CNTK.proto.Dictionary")
Array = Any


def variable(dictionary: Any, **texts: str) -> Array:
    """A variable among the inputs of `dictionary`, and the array that is its value."""
    element = dictionary.data["inputs"].vector_value.value.add().dictionary_value
    for key, text in texts.items():
        element.data[key].string_value = text
    return element.data["value"].nd_array_view_value


def fill(array: Array, values: np.ndarray[Any, Any]) -> None:
    """Write `values` as CNTK does: column-major, with the dimensions in reverse order."""
    array.shape.shape_dim.extend(reversed(values.shape))
    kinds = {
        "f4": (1, "float_values"),
        "f8": (2, "double_values"),
        "i1": (5, "bytes_value"),
        "i2": (6, "sint32_values"),
    }
    array.data_type, member = kinds[values.dtype.str[1:]]
    if member == "bytes_value":
        array.bytes_value.value = values.tobytes()
    else:
        getattr(array, member).value.extend(values.ravel().tolist())


@pytest.mark.parametrize(("dtype", "name"), [("<f4", "F32"), ("<f8", "F64"), ("|i1", "I8"), ("<i2", "I16")])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (1,), (), (0, 4)])
def test_values(tmp_path: Path, dtype: str, name: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(-100, 100, shape).astype(dtype)
    dictionary = DICTIONARY(version=1)
    fill(variable(dictionary, uid="Parameter4", name="W"), values)
    model = opened(tmp_path, dictionary)
    (tensor,) = model.matching()
    assert (tensor.name, tensor.dtype and tensor.dtype.name, tensor.shape) == ("W", name, shape)
    assert model.read(tensor).read() == values.tobytes()
    assert (
        tensor.address == 'path:data["inputs"].vector_value.value[0].dictionary_value.data["value"].nd_array_view_value'
    )


def test_names_are_those_of_the_variables_else_uids_else_paths(tmp_path: Path) -> None:
    dictionary = DICTIONARY(version=1)
    for texts in ({"name": "W", "uid": "P1"}, {"name": "", "uid": "P2"}, {}):
        fill(variable(dictionary, **texts), np.array([1], "<f4"))
    fill(dictionary.data["smoothed"].nd_array_view_value, np.array([2], "<f4"))
    names = [each.name for each in opened(tmp_path, dictionary).matching()]
    last = 'data["inputs"].vector_value.value[2].dictionary_value.data["value"].nd_array_view_value'
    assert sorted(names) == sorted(["W", "P2", last, 'data["smoothed"].nd_array_view_value'])


def test_half_floats_are_floats_as_they_are_stored(tmp_path: Path) -> None:
    dictionary = DICTIONARY(version=1)
    array = variable(dictionary, uid="P")
    fill(array, np.array([1.5, -2], "<f4"))
    array.data_type = 4
    model = opened(tmp_path, dictionary)
    (tensor,) = model.matching()
    assert tensor.dtype is not None
    assert tensor.dtype.name == "F32"
    assert np.frombuffer(model.read(tensor).read(), "<f4").tolist() == [1.5, -2]


def test_arrays_that_cannot_be_read(tmp_path: Path) -> None:
    dictionary = DICTIONARY(version=1)
    arrays = {name: variable(dictionary, uid=name) for name in ("Sparse", "unknown", "short", "vast", "none", "good")}
    for array in arrays.values():
        fill(array, np.array([1, 2], "<f4"))
    arrays["Sparse"].storage_format = 1
    arrays["unknown"].data_type = 0
    arrays["short"].shape.shape_dim[0] = 3
    arrays["vast"].shape.shape_dim[0] = 2**64 - 1
    arrays["none"].ClearField("float_values")
    model = opened(tmp_path, dictionary)
    says = {
        "Sparse": "Sparse",
        "unknown": "type 0",
        "short": "takes 12 bytes",
        "vast": "elements",
        "none": "above 2 GiB",
    }
    for name, text in says.items():
        assert isinstance(model.tensor(name).data, Unreadable)
        with pytest.raises(Unsupported if name == "Sparse" else CorruptModel, match=text):
            model.read(name)
    assert model.read("good").size == 8

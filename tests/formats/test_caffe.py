"""Caffe: relevant dimensions, places of values, and faults of a blob.

CNTK: arrays in dictionaries, named like their variables, with shapes as in NumPy.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.stores import field
from tests.support.tensors import opened

from protoslice import open_model
from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.registry import tensors_of
from protoslice.schema import bundled
from protoslice.tensors.model import Unreadable

NET: Any = bundled().message_class("caffe.NetParameter")


def net_of(**blob: Any) -> Any:
    net = NET(name="net")
    net.layer.add(name="conv", type="Convolution").blobs.add(**blob)
    return net


@pytest.mark.parametrize(
    ("blob", "shape"),
    [
        ({"data": [1, 2, 3, 4]}, (4,)),
        ({"data": [1], "shape": {}}, ()),
        ({"data": [1, 2, 3, 4], "shape": {"dim": [2, 2]}}, (2, 2)),
        ({"data": [1, 2, 3, 4], "num": 1, "channels": 1, "height": 2, "width": 2, "shape": {"dim": [4]}}, (1, 1, 2, 2)),
        ({"shape": {"dim": [3, 0]}}, (3, 0)),
    ],
)
def test_dimensions(tmp_path: Path, blob: dict[str, Any], shape: tuple[int, ...]) -> None:
    model = opened(tmp_path, net_of(**blob))
    (tensor,) = model.matching()
    assert (tensor.name, tensor.shape, tensor.holder) == ("conv.blobs[0]", shape, "blob")
    assert model.read(tensor).read() == struct.pack(f"<{len(blob.get('data', []))}f", *blob.get("data", []))


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        ({"data": [1, 2, 3], "shape": {"dim": [2, 2]}}, "4 values, but the blob has 3"),
        ({"data": [1], "shape": {"dim": [-1]}}, "Invalid dimension -1"),
        ({"data": [1], "num": 1}, "needs 0 values"),
        ({"data": [1], "shape": {"dim": [2**62, 2**62]}}, "too many elements to address"),
        ({"data": [1], "shape": {"dim": [1 << 60] * 1000}}, "more dimensions than Caffe allows"),
        ({"data": [1], "shape": {"dim": [1 << 60] * 200}}, "too many elements to address"),
        ({"shape": {"dim": [2]}}, "2 values, but the blob has 0"),
    ],
)
def test_a_blob_that_makes_no_sense_is_a_fault_and_the_others_stay(
    tmp_path: Path, blob: dict[str, Any], says: str
) -> None:
    net = net_of(**blob)
    net.layer[0].blobs.add(data=[7])
    bad, good = opened(tmp_path, net).matching()
    assert isinstance(bad.data, Unreadable)
    with pytest.raises(CorruptModel, match=says) as caught:
        opened(tmp_path, net).read(bad.address)
    assert caught.value.path == "layer[0].blobs[0]"
    assert opened(tmp_path, net).read(good.address).read() == struct.pack("<f", 7)


def test_doubles_come_before_floats_and_gradients_are_no_tensors(tmp_path: Path) -> None:
    net = net_of(data=[1], double_data=[2, 3], diff=[4], double_diff=[5])
    model = opened(tmp_path, net)
    (tensor,) = model.matching()
    assert (tensor.dtype and tensor.dtype.name, tensor.shape) == ("F64", (2,))
    assert model.read(tensor).read() == struct.pack("<2d", 2, 3)


def test_a_field_of_another_wire_type_is_no_data(tmp_path: Path) -> None:
    """Field 5 as a varint is an unknown field to protobuf, and to us."""
    blob = b"\x28\x07" + bytes.fromhex("2a0400000040")
    layer = b"\x0a\x01l" + b"\x3a" + bytes([len(blob)]) + blob
    path = tmp_path / "odd.caffemodel"
    path.write_bytes(b"\xa2\x06" + bytes([len(layer)]) + layer)
    model = open_model(path, type="caffe.NetParameter")
    (tensor,) = model.matching()
    assert tensor.shape == (1,)
    assert model.read(tensor).read() == struct.pack("<f", 2)


def test_unnamed_layers_and_other_messages_go_by_their_paths(tmp_path: Path) -> None:
    net = NET()
    net.layer.add(type="Scale").blobs.add(data=[1])
    assert [each.name for each in opened(tmp_path, net).matching()] == ["layer[0].blobs[0]"]
    state: Any = bundled().message_class("caffe.SolverState")(iter=3)
    state.history.add(data=[1, 2])
    assert [each.name for each in opened(tmp_path, state).matching()] == ["history[0]"]


HALVES = np.array([1.5, -2, 65504, 0], "<f2")


@pytest.mark.parametrize(
    ("number", "values", "dtype"),
    [
        (0, HALVES.astype("<f8"), "F64"),
        (1, HALVES.astype("<f4"), "F32"),
        (2, HALVES, "F16"),
        (3, HALVES.astype("<i4"), "I32"),
        (4, np.array([1, 2, 3, 4], "<u4"), "U32"),
    ],
)
def test_raw_data_is_of_the_type_that_it_names(tmp_path: Path, number: int, values: Any, dtype: str) -> None:
    blob = {"shape": {"dim": [2, 2]}, "raw_data_type": number, "raw_data": values.tobytes()}
    model = opened(tmp_path, net_of(**blob))
    (tensor,) = model.matching()
    assert tensor.dtype is not None
    assert (tensor.dtype.name, tensor.shape) == (dtype, (2, 2))
    assert model.read(tensor).read() == values.tobytes()
    assert list(tensors_of(model.model).numbers("conv.blobs[0]")) == [0]


def test_floats_come_before_raw_data(tmp_path: Path) -> None:
    model = opened(tmp_path, net_of(data=[1.0], raw_data_type=2, raw_data=b"12"))
    assert model.read("conv.blobs[0]").read() == struct.pack("<f", 1)


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (b"\x50\x02" + field(12, b"123"), "3 bytes of raw data"),
        (b"\x50\x09" + field(12, bytes(8)), "unknown number type"),
        (b"\x50\x02" + field(12, b"1234") + field(7, field(1, b"\x05")), "5 values, but the blob has 2"),
    ],
)
def test_raw_data_that_makes_no_sense_is_a_fault(tmp_path: Path, blob: bytes, says: str) -> None:
    (tmp_path / "net.caffemodel").write_bytes(field(100, field(1, b"conv") + field(7, blob)))
    with open_model(tmp_path / "net.caffemodel", type="caffe.NetParameter") as model:
        (tensor,) = model.matching()
        assert isinstance(tensor.data, Unreadable)
        assert says in tensor.data.error.message


SSD = """
name: "VGG_VOC0712_SSD_300x300_deploy"
input: "data"
input_shape { dim: 1 dim: 3 dim: 300 dim: 300 }
layer {
  name: "conv4_3_norm" type: "Normalize" bottom: "conv4_3" top: "conv4_3_norm"
  norm_param { across_spatial: false scale_filler { type: "constant" value: 20 } channel_shared: false }
}
layer { name: "conv4_3_norm_mbox_loc_perm" type: "Permute" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer {
  name: "conv4_3_norm_mbox_priorbox" type: "PriorBox"
  prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 flip: true clip: false variance: 0.1 step: 8 offset: 0.5 }
}
layer {
  name: "detection_out" type: "DetectionOutput"
  detection_output_param {
    num_classes: 21 share_location: true background_label_id: 0
    nms_param { nms_threshold: 0.45 top_k: 400 }
    save_output_param { label_map_file: "labelmap_voc.prototxt" }
    code_type: CENTER_SIZE keep_top_k: 200 confidence_threshold: 0.01
  }
  include { phase: TEST }
}
"""
TRAINING = """
layer {
  name: "data" type: "AnnotatedData"
  transform_param {
    mirror: true mean_value: 104
    resize_param { prob: 1 resize_mode: WARP height: 300 width: 300 interp_mode: LINEAR interp_mode: AREA }
    emit_constraint { emit_type: CENTER }
    distort_param { brightness_prob: 0.5 brightness_delta: 32 random_order_prob: 0 }
    expand_param { prob: 0.5 max_expand_ratio: 4 }
  }
  annotated_data_param {
    batch_sampler { sampler { min_scale: 0.3 } sample_constraint { min_jaccard_overlap: 0.1 } max_sample: 1 }
    label_map_file: "labelmap_voc.prototxt"
  }
}
layer {
  name: "mbox_loss" type: "MultiBoxLoss"
  multibox_loss_param { loc_loss_type: SMOOTH_L1 conf_loss_type: SOFTMAX mining_type: MAX_NEGATIVE }
}
"""


@pytest.mark.parametrize("text", [SSD, TRAINING])
def test_texts_of_ssd_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "deploy.prototxt").write_text(text)
    with open_model(tmp_path / "deploy.prototxt") as model:
        assert model.model.type == "caffe.NetParameter"
        assert len(model.tensors) == 0


DICTIONARY: Any = bundled().message_class("CNTK.proto.Dictionary")
Array = Any


def variable(dictionary: Any, **texts: str) -> Array:
    """Put a variable among the inputs of `dictionary`; return its array."""
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

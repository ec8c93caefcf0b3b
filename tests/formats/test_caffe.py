"""Caffe: which dimensions count, where values lie, and what is wrong with a blob."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from protoslice.errors import CorruptModel
from protoslice.formats.model import Fault
from protoslice.library.models import LocalModel, open_model
from protoslice.schema import bundled

NET: Any = bundled().message_class("caffe.NetParameter")


def opened(path: Path, net: Any) -> LocalModel:
    path.joinpath("net.caffemodel").write_bytes(net.SerializeToString())
    return open_model(path / "net.caffemodel", type=net.DESCRIPTOR.full_name)


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
    (tensor,) = model
    assert (tensor.name, tensor.shape, tensor.kind) == ("conv.blobs[0]", shape, "blob")
    assert model.read(tensor).read() == struct.pack(f"<{len(blob.get('data', []))}f", *blob.get("data", []))


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        ({"data": [1, 2, 3], "shape": {"dim": [2, 2]}}, "4 values by its shape, and 3 are there"),
        ({"data": [1], "shape": {"dim": [-1]}}, "a dimension of -1"),
        ({"data": [1], "num": 1}, "0 values by its shape"),
        ({"data": [1], "shape": {"dim": [2**62, 2**62]}}, "more elements than can be addressed"),
        ({"data": [1], "shape": {"dim": [1 << 60] * 1000}}, "more dimensions than Caffe takes"),
        ({"data": [1], "shape": {"dim": [1 << 60] * 200}}, "more elements than can be addressed"),
        ({"shape": {"dim": [2]}}, "2 values by its shape, and 0 are there"),
    ],
)
def test_a_blob_that_makes_no_sense_is_a_fault_and_the_others_stay(
    tmp_path: Path, blob: dict[str, Any], says: str
) -> None:
    net = net_of(**blob)
    net.layer[0].blobs.add(data=[7])
    bad, good = opened(tmp_path, net)
    assert isinstance(bad.data, Fault)
    with pytest.raises(CorruptModel, match=says) as caught:
        opened(tmp_path, net).read(bad.address)
    assert caught.value.path == "layer[0].blobs[0]"
    assert opened(tmp_path, net).read(good.address).read() == struct.pack("<f", 7)


def test_doubles_come_before_floats_and_gradients_are_no_tensors(tmp_path: Path) -> None:
    net = net_of(data=[1], double_data=[2, 3], diff=[4], double_diff=[5])
    (tensor,) = model = opened(tmp_path, net)
    assert (tensor.dtype and tensor.dtype.name, tensor.shape) == ("F64", (2,))
    assert model.read(tensor).read() == struct.pack("<2d", 2, 3)


def test_a_field_of_another_wire_type_is_no_data(tmp_path: Path) -> None:
    """Field 5 as a varint is an unknown field to protobuf, and to us."""
    blob = b"\x28\x07" + bytes.fromhex("2a0400000040")
    layer = b"\x0a\x01l" + b"\x3a" + bytes([len(blob)]) + blob
    path = tmp_path / "odd.caffemodel"
    path.write_bytes(b"\xa2\x06" + bytes([len(layer)]) + layer)
    (tensor,) = model = open_model(path, type="caffe.NetParameter")
    assert tensor.shape == (1,)
    assert model.read(tensor).read() == struct.pack("<f", 2)


def test_unnamed_layers_and_other_messages_go_by_their_paths(tmp_path: Path) -> None:
    net = NET()
    net.layer.add(type="Scale").blobs.add(data=[1])
    assert [each.name for each in opened(tmp_path, net)] == ["layer[0].blobs[0]"]
    state: Any = bundled().message_class("caffe.SolverState")(iter=3)
    state.history.add(data=[1, 2])
    assert [each.name for each in opened(tmp_path, state)] == ["history[0]"]

"""Core ML: weights of layers, constants of programs, and records of blob files, valid and damaged."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.stores import in_memory, upload

from protoslice import open_model
from protoslice.concurrency import finish
from protoslice.errors import CorruptModel, NotFound, Unsupported
from protoslice.library.models import LocalModel
from protoslice.schema import bundled
from protoslice.tensors.model import Deferred, Unreadable
from protoslice.tensors.statistics import statistics_job

MODEL: Any = bundled().message_class("CoreML.Specification.Model")
TYPES: Any = MODEL.DESCRIPTOR.file.pool.FindEnumTypeByName("CoreML.Specification.MILSpec.DataType").values_by_name
FOLDER = "m.mlpackage/Data/com.apple.CoreML"


def opened(path: Path, model: Any, weights: bytes | None = None) -> LocalModel:
    folder = path / FOLDER
    folder.joinpath("weights").mkdir(parents=True, exist_ok=True)
    folder.joinpath("model.mlmodel").write_bytes(model.SerializeToString())
    if weights is not None:
        folder.joinpath("weights/weight.bin").write_bytes(weights)
    return open_model(path, f"{FOLDER}/model.mlmodel", "CoreML.Specification.Model")


def network() -> Any:
    return MODEL(specificationVersion=4)


def test_weights_by_layer_and_field(tmp_path: Path) -> None:
    model = network()
    layer = model.neuralNetwork.layers.add(name="conv")
    layer.convolution.weights.floatValue.extend([1, 2])
    layer.convolution.bias.float16Value = np.array([3], "<f2").tobytes()
    quantized = model.neuralNetwork.layers.add(name="fc").innerProduct
    quantized.weights.rawValue = b"\x01\xff\x02"
    quantized.weights.quantization.numberOfBits = 8
    quantized.int8DynamicQuantize = True
    model.neuralNetwork.layers.add(name="fc8").innerProduct.weights.int8RawValue = b"\x01\xff"
    recurrent = model.neuralNetwork.layers.add(name="lstm").biDirectionalLSTM.weightParams
    recurrent.add()
    recurrent.add().inputGateWeightMatrix.floatValue.append(4)
    inner = model.neuralNetwork.layers.add(name="branch").branch.ifBranch.layers.add(name="inner")
    inner.innerProduct.weights.floatValue.append(5)
    model.neuralNetwork.layers.add().bias.bias.floatValue.append(6)
    model.neuralNetwork.layers.add(name="empty").bias.bias.isUpdatable = True
    found = {each.name: (each.dtype and each.dtype.name, each.shape) for each in opened(tmp_path, model).matching()}
    assert found == {
        "conv.weights": ("F32", (2,)),
        "conv.bias": ("F16", (1,)),
        "fc.weights": ("U8", (3,)),
        "fc8.weights": ("I8", (2,)),
        "lstm.weightParams[1].inputGateWeightMatrix": ("F32", (1,)),
        "inner.weights": ("F32", (1,)),
        "neuralNetwork.layers[5].bias.bias": ("F32", (1,)),
    }
    assert opened(tmp_path, model).read("fc.weights").read() == b"\x01\xff\x02"


def package(path: Path, manifest: str) -> None:
    """Return two models in a package; the larger one has the usual name."""
    for name, count in (("model", 50), ("other", 3)):
        model = network()
        model.neuralNetwork.layers.add(name=name).bias.bias.floatValue.extend([1.0] * count)
        (path / FOLDER).mkdir(parents=True, exist_ok=True)
        (path / FOLDER / f"{name}.mlmodel").write_bytes(model.SerializeToString())
    (path / "m.mlpackage/Manifest.json").write_text(manifest)


OTHER = json.dumps(
    {
        "itemInfoEntries": {"a": {"path": "com.apple.CoreML/other.mlmodel"}, "b": {"path": "x"}},
        "rootModelIdentifier": "a",
    }
)
UNREADABLE = [
    "", "[]", "{", "{}", "[" * 100_000,
    '{"itemInfoEntries": {}, "rootModelIdentifier": "a"}',
    '{"itemInfoEntries": {"a": {"path": 5}}, "rootModelIdentifier": "a"}',
    OTHER.replace("com.apple.CoreML/", "../../../"),
    OTHER.replace("other", "absent"),
]  # fmt: skip


@pytest.mark.parametrize(("manifest", "root"), [(OTHER, "other"), *((each, "model") for each in UNREADABLE)])
def test_the_manifest_of_a_package_says_which_model_it_is(tmp_path: Path, manifest: str, root: str) -> None:
    package(tmp_path, manifest)
    for place, inner in ((tmp_path, f"{FOLDER}/"), (tmp_path / "m.mlpackage", "Data/com.apple.CoreML/")):
        with open_model(place) as model:
            assert model.model.root == f"{inner}{root}.mlmodel"
            assert [tensor.name for tensor in model.matching()] == [f"{root}.bias"]
    files = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    info = in_memory(lambda stores, _: upload(stores, files)).store
    assert (info.root, info.type) == (f"{FOLDER}/{root}.mlmodel", "CoreML.Specification.Model")


def test_half_floats_of_an_odd_number_of_bytes(tmp_path: Path) -> None:
    model = network()
    model.neuralNetwork.layers.add(name="l").bias.bias.float16Value = b"123"
    (tensor,) = opened(tmp_path, model).matching()
    assert isinstance(tensor.data, Unreadable)
    assert "3 bytes" in tensor.data.error.message


class Program:
    """An ML program, and its blob file."""

    def __init__(self) -> None:
        self.model = MODEL(specificationVersion=7)
        block = self.model.mlProgram.functions["main"].block_specializations["CoreML7"]
        self.operations = block.operations
        self.weights = bytearray(struct.pack("<II56x", 0, 2))

    def const(self, name: str, kind: str, shape: tuple[int, ...]) -> Any:
        """Return the value of a new constant."""
        operation = self.operations.add(type="const")
        operation.outputs.add(name=name)
        operation.attributes["name"].immediateValue.tensor.strings.values.append(name)
        operation.attributes["name"].type.tensorType.dataType = TYPES["STRING"].number
        value = operation.attributes["val"]
        typed(value, kind, shape)
        return value

    def blob(self, name: str, kind: str, shape: tuple[int, ...], data: bytes, **changes: int) -> None:
        """Add a constant to the blob file, whose record has `changes`."""
        value = self.const(name, kind, shape)
        offset = len(self.weights)
        fields = {"sentinel": 0xDEADBEEF, "kind": 1, "size": len(data), "start": offset + 64, "padding": 0} | changes
        self.weights += struct.pack("<IIQQQ32x", *fields.values()) + data + bytes(-len(data) % 64)
        value.blobFileValue.fileName = "@model_path/weights/weight.bin"
        value.blobFileValue.offset = offset


def typed(value: Any, kind: str, shape: tuple[int, ...]) -> None:
    value.type.tensorType.dataType = TYPES[kind].number
    value.type.tensorType.rank = len(shape)
    for length in shape:
        value.type.tensorType.dimensions.add().constant.size = length


IMMEDIATE = [
    ("FLOAT32", "floats", "<f4"), ("FLOAT64", "doubles", "<f8"), ("INT32", "ints", "<i4"), ("INT64", "longInts", "<i8"),
    ("UINT16", "ints", "<u2"), ("BOOL", "bools", "?"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "member", "dtype"), IMMEDIATE)
@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (0,)])
def test_immediate_values(tmp_path: Path, kind: str, member: str, dtype: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(6)[: int(np.prod(shape))] % 7).astype(dtype).reshape(shape)
    program = Program()
    tensor = program.const("c", kind, shape).immediateValue.tensor
    getattr(tensor, member).SetInParent()
    getattr(tensor, member).values.extend(values.ravel().tolist())
    model = opened(tmp_path, program.model)
    assert [each.name for each in model.matching()] == ["c"]
    assert model.tensor("c").shape == shape
    assert model.read("c").read() == values.tobytes()


@pytest.mark.parametrize(("kind", "data", "raw"), [
    ("FLOAT16", bytes(range(6)), bytes(range(6))),
    ("INT8", b"\x01\xff\x00", b"\x01\xff\x00"),
    ("UINT8", b"\x01\xff\x00", b"\x01\xff\x00"),
    ("INT4", b"\xf1\x02", b"\x01\xff\x02"),
    ("UINT1", b"\x05", b"\x01\x00\x01"),
    ("UINT3", b"\x1f\x01", b"\x07\x03\x04"),
    ("UINT6", b"\xbf\x00\x02", b"\x3f\x02\x20"),
])  # fmt: skip
def test_immediate_bytes(tmp_path: Path, kind: str, data: bytes, raw: bytes) -> None:
    program = Program()
    program.const("c", kind, (3,)).immediateValue.tensor.bytes.values = data
    assert opened(tmp_path, program.model).read("c").read() == raw


def test_names_are_of_the_operation_and_its_attribute_or_input(tmp_path: Path) -> None:
    program = Program()
    program.const("x", "STRING", ()).immediateValue.tensor.strings.values.append("fp16")
    operation = program.operations.add(type="while_loop")
    operation.outputs.add(name="out")
    for value in (operation.attributes["scale"], operation.inputs["y"].arguments.add().value):
        typed(value, "INT32", (1,))
        value.immediateValue.tensor.ints.values.append(3)
    inner = operation.blocks.add().operations.add(type="const")
    inner.outputs.add(name="inner")
    typed(inner.attributes["val"], "INT32", (1,))
    inner.attributes["val"].immediateValue.tensor.ints.values.append(4)
    after = operation.attributes["tail"]
    after.type.listType.type.tensorType.rank = 1
    typed(after.immediateValue.list.values.add(), "INT32", ())
    after.immediateValue.list.values[0].immediateValue.tensor.ints.values.append(5)
    program.model.mlProgram.attributes["build"].immediateValue.tensor.strings.values.append("not of an operation")
    model = opened(tmp_path, program.model)
    names = {"x", "out:scale", "out:y", "inner", "out:tail.immediateValue.list.values[0]"}
    assert {each.name for each in model.matching()} == names
    assert model.read("x", form="json").read() == b'{"dtype":"STRING","shape":[],"values":["ZnAxNg=="]}'


def test_blobs(tmp_path: Path) -> None:
    program = Program()
    values = np.arange(6, dtype="<f2").reshape(2, 3)
    program.blob("half", "FLOAT16", (2, 3), values.tobytes())
    program.blob("nibbles", "INT4", (3,), b"\xf1\x02", padding=4)
    model = opened(tmp_path, program.model, bytes(program.weights))
    half = model.tensor("half")
    assert (half.file, half.holder) == (f"{FOLDER}/weights/weight.bin", "blob")
    assert model.read("half").core.pieces() == [(0, 128, 12)]
    assert model.read("half", "1,:").read() == values[1].tobytes()
    assert model.read("nibbles").read() == b"\x01\xff\x02"
    assert model.read("nibbles", form="packed").read() == b"\xf1\x02"


def test_a_listing_does_not_look_into_the_blob_file(tmp_path: Path) -> None:
    program = Program()
    program.blob("a", "FLOAT16", (1,), b"12")
    model = opened(tmp_path, program.model, b"nothing that anybody could read")
    assert isinstance(model.tensor("a").data, Deferred)
    with pytest.raises(CorruptModel, match="blob record at byte"):
        model.read("a")


@pytest.mark.parametrize(("changes", "says"), [
    ({"sentinel": 1}, "magic number 0x1"),
    ({"size": 4}, "4 bytes, but 1 elements of F16 take 2"),
    ({"start": 1 << 62}, "reaches beyond its file"),
    ({"size": (1 << 64) - 1}, "reaches beyond its file"),
])  # fmt: skip
def test_records_that_are_wrong(tmp_path: Path, changes: dict[str, int], says: str) -> None:
    program = Program()
    program.blob("bad", "FLOAT16", (1,), b"12", **changes)
    program.blob("good", "FLOAT16", (1,), b"34")
    model = opened(tmp_path, program.model, bytes(program.weights))
    with pytest.raises(CorruptModel, match=says) as caught:
        model.read("bad")
    assert caught.value.offset == 64
    assert model.read("good").read() == b"34"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "@model_path/../../x", "@model_path/", "@model_path/a\0b", "w.bin", ""]
)
def test_files_elsewhere_are_not_read(tmp_path: Path, name: str) -> None:
    program = Program()
    program.blob("a", "FLOAT16", (1,), b"12")
    program.operations[0].attributes["val"].blobFileValue.fileName = name
    tensor = opened(tmp_path, program.model, bytes(program.weights)).tensor("a")
    assert isinstance(tensor.data, Unreadable)
    assert re.search("is stored in|of external data", tensor.data.error.message)


def test_a_blob_file_that_is_missing(tmp_path: Path) -> None:
    program = Program()
    program.blob("a", "FLOAT16", (1,), b"12")
    with pytest.raises(NotFound, match=r"weight\.bin"):
        opened(tmp_path, program.model).read("a")


def test_constants_that_make_no_sense(tmp_path: Path) -> None:
    program = Program()
    says = {
        "mixed": "type I32 stores its values in the field floats",
        "open": "unknown length",
        "odd": "type number 99 are not supported",
        "none": "no tensor values",
    }
    program.const("mixed", "INT32", (1,)).immediateValue.tensor.floats.values.append(1)
    program.const("open", "INT32", ()).type.tensorType.dimensions.add().unknown.variadic = True
    odd = program.const("odd", "UINT8", (1,))
    odd.type.tensorType.dataType = 99
    odd.immediateValue.tensor.bytes.values = b"1"
    program.const("none", "INT32", (1,)).immediateValue.tensor.SetInParent()
    program.operations[1].attributes["val"].immediateValue.tensor.ints.values.append(1)
    model = opened(tmp_path, program.model)
    for name, text in says.items():
        with pytest.raises(Unsupported if name == "odd" else CorruptModel, match=text):
            model.read(name)


@pytest.mark.parametrize(
    ("kind", "bits", "stored"),
    [("UINT3", 3, "88c6fa88c6fa8806"), ("UINT6", 6, "40200c44611c48a22c4ce33c50244d")],
)
def test_palettes_are_read_as_coremltools_writes_them(tmp_path: Path, kind: str, bits: int, stored: str) -> None:
    # The bytes that `_BlobStorageWriter` of coremltools 9.0 wrote for the numbers from 0 to 19, modulo 2 to the bits.
    program = Program()
    program.blob("c", kind, (4, 5), bytes.fromhex(stored))
    model = opened(tmp_path, program.model, bytes(program.weights))
    assert model.tensor("c").size == 20
    assert model.read("c").read() == bytes(number % 2**bits for number in range(20))
    assert model.read("c", "1,::2").read() == bytes(number % 2**bits for number in (5, 7, 9))
    assert model.read("c", form="packed").read() == bytes.fromhex(stored)
    assert finish(statistics_job(model.tensor("c"))).max == min(19, 2**bits - 1)

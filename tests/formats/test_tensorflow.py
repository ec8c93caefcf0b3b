"""TensorFlow: constants in every encoding, at any path; texts, warm-up requests, event files, tags.

Signatures of SavedModels equal those of the parsed message.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.bundles import GRAPHS, VALUES, crc32c, masked, write_meta_graphs
from tests.support.golden import MODELS
from tests.support.protos.writer import varint
from tests.support.streams import FRAMED
from tests.support.tensors import elements, message, strings

import protoslice
from protoslice import open_model, schema
from protoslice.detection import detect
from protoslice.errors import CorruptModel, IntegrityError, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.facts import Signature, SignatureTensor
from protoslice.formats import warmup
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.formats.tensorflow import TYPES
from protoslice.library.opening import open_proto
from protoslice.sources.files import BytesSource
from protoslice.tensors.model import Model, RootProto, Tensor
from protoslice.tensors.reading import read
from protoslice.views.models import signatures_page

TYPED = {
    1: ("float_val", "<f4"), 2: ("double_val", "<f8"), 3: ("int_val", "<i4"), 4: ("int_val", "|u1"),
    5: ("int_val", "<i2"), 6: ("int_val", "|i1"), 8: ("scomplex_val", "<c8"), 9: ("int64_val", "<i8"),
    10: ("bool_val", "|b1"), 17: ("int_val", "<u2"), 18: ("dcomplex_val", "<c16"), 19: ("half_val", "<f2"),
    22: ("uint32_val", "<u4"), 23: ("uint64_val", "<u8"),
}  # fmt: skip


def tensors(data: bytes, type_name: str) -> list[Tensor]:
    proto = open_proto(data, type_name)
    model = Model("m.pb", type_name, {"m.pb": BytesSource(data)}, RootProto(proto.document, proto.sources))
    found = tensors_of(model)
    return [found[number] for number in range(len(found))]


def expected(case: str) -> Any:
    return json.loads((MODELS / case / "expected.json").read_text())


@st.composite
def arrays(draw: st.DrawFn) -> tuple[int, Any, Any]:
    """Return type number, array, and number of written elements; the last written element stands for the rest."""
    number = draw(st.sampled_from(sorted(TYPED)))
    kind = np.dtype(TYPED[number][1])
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = int(np.prod(shape))
    noise = np.frombuffer(np.random.default_rng(draw(st.integers(0, 999))).bytes(count * kind.itemsize), "|u1")
    flat = (noise & 1 if number == 10 else noise & 0x3F).view(kind).copy()
    written = draw(st.integers(0, count))
    flat[written:] = flat[written - 1] if written else 0
    return number, flat.reshape(shape), written


def values_of(number: int, flat: Any) -> list[Any]:
    if number in (8, 18):
        parts: list[Any] = flat.view("<f4" if number == 8 else "<f8").tolist()
        return parts
    listed: list[Any] = (flat.view("<u2") if number == 19 else flat).tolist()
    return listed


@given(arrays(), st.sampled_from(["packed", "pieces", "unpacked", "content"]))
@settings(max_examples=120)
def test_a_tensor_is_read_however_it_is_written(given_: tuple[int, Any, int], how: str) -> None:
    number, array, written = given_
    field = TYPED[number][0]
    proto = message("tensorflow.TensorProto")
    proto.dtype = number
    proto.tensor_shape.SetInParent()
    for length in array.shape:
        proto.tensor_shape.dim.add(size=length)
    values = values_of(number, array.reshape(-1)[:written])
    data = proto.SerializeToString()
    if how == "content":
        proto.tensor_content = array.tobytes()
        data = proto.SerializeToString()
    elif how == "packed":
        getattr(proto, field).extend(values)
        data = proto.SerializeToString()
    else:
        step = 2 if number in (8, 18) else 1
        for at in range(0, len(values), step):
            part = message("tensorflow.TensorProto")
            getattr(part, field).extend(values[at : at + step])
            piece = part.SerializeToString()
            data += unpacked(piece, number) if how == "unpacked" else piece
    (tensor,) = tensors(data, "tensorflow.TensorProto")
    assert (tensor.shape, elements(tensor)) == (array.shape, array.tobytes())
    if array.ndim:
        assert elements(tensor, "1:") == array[1:].tobytes()


def unpacked(piece: bytes, number: int) -> bytes:
    """Return a packed field of one value, or of two halves of one value, as separate fields."""
    place = 1 if piece[0] < 0x80 else 2
    tag, content = piece[:place], piece[place + 1 :]
    width = {1: 4, 2: 8, 8: 4, 18: 8}.get(number)
    wire = 0 if width is None else 5 if width == 4 else 1
    head = bytes([tag[0] & ~7 | wire]) + tag[1:]
    parts = [content] if width is None else [content[at : at + width] for at in range(0, len(content), width)]
    return b"".join(head + part for part in parts)


def node(graph: Any, name: str, **tensor: Any) -> Any:
    made = graph.node.add(name=name, op="Const")
    proto = made.attr["value"].tensor
    for key, value in tensor.items():
        if key == "shape":
            for length in value:
                proto.tensor_shape.dim.add(size=length)
        elif isinstance(value, list):
            getattr(proto, key).extend(value)
        else:
            setattr(proto, key, value)
    return made


def one(**tensor: Any) -> Tensor:
    graph = message("tensorflow.GraphDef")
    node(graph, "n", **tensor)
    (found,) = tensors(graph.SerializeToString(), "tensorflow.GraphDef")
    return found


def test_strings_repeat_their_last_and_may_be_packed() -> None:
    assert strings(one(dtype=7, shape=[3], string_val=[b"a", b"bc"])) == [b"a", b"bc", b"bc"]
    assert strings(one(dtype=7, shape=[2])) == [b"", b""]
    assert strings(one(dtype=7, shape=[3], tensor_content=b"\x02\x00\x01abc")) == [b"ab", b"", b"c"]
    many = one(dtype=7, shape=[1 << 40], string_val=[b"x"])
    assert strings(many, "1000000:1000002") == [b"x", b"x"]
    with pytest.raises(LimitExceeded):
        strings(many)


def test_narrow_and_odd_types() -> None:
    assert elements(one(dtype=29, shape=[3], int_val=[-1, 7, -8])) == b"\xff\x07\xf8"
    assert elements(one(dtype=29, shape=[2], tensor_content=b"\x0f\x07")) == b"\xff\x07"
    assert elements(one(dtype=30, shape=[2], int_val=[15])) == b"\x0f\x0f"
    assert elements(one(dtype=25, shape=[3], float8_val=b"\x01\x02")) == b"\x01\x02\x02"
    assert elements(one(dtype=14, shape=[2], half_val=[0x3F80])) == b"\x80\x3f\x80\x3f"
    assert elements(one(dtype=101, shape=[1], float_val=[1.0])) == b"\0\0\x80\x3f"
    assert elements(one(dtype=10, shape=[2], bool_val=[True, False])) == b"\x01\x00"


@pytest.mark.parametrize(
    ("tensor", "kind", "match"),
    [
        ({"dtype": 1, "shape": [2], "tensor_content": b"123"}, CorruptModel, "takes 8 bytes"),
        ({"dtype": 1, "shape": [1], "float_val": [1.0, 2.0]}, CorruptModel, "1 elements"),
        ({"dtype": 8, "shape": [2], "scomplex_val": [1.0]}, CorruptModel, "2 elements"),
        ({"dtype": 1, "shape": [-2]}, CorruptModel, "Invalid dimension -2"),
        ({"dtype": 99}, CorruptModel, "no data type 99"),
        ({"dtype": 0}, CorruptModel, "no data type 0"),
        ({"dtype": 20}, Unsupported, "resource"),
        ({"dtype": 21}, Unsupported, "variant"),
    ],
)
def test_what_cannot_be_is_told_when_it_is_read(
    tensor: dict[str, Any], kind: type[ProtosliceError], match: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        read(one(**tensor))
    assert caught.value.path == 'node[0].attr["value"].tensor'


def test_too_many_values_are_told() -> None:
    with pytest.raises(CorruptModel):
        elements(one(dtype=3, shape=[1], int_val=[1, 2]))
    with pytest.raises(CorruptModel):
        strings(one(dtype=7, shape=[1], string_val=[b"a", b"b"]))


def test_names_say_where_a_tensor_belongs() -> None:
    graph = message("tensorflow.GraphDef")
    node(graph, "a/b", dtype=1, float_val=[1.0])
    function = graph.library.function.add()
    function.signature.name = "f"
    function.node_def.add(name="c").attr["value"].tensor.dtype = 1
    function.attr["x"].tensor.dtype = 1
    graph.library.function.add().node_def.add(name="d").attr["value"].tensor.dtype = 1
    graph.node[0].attr["other"].list.tensor.add(dtype=1)
    found = tensors(graph.SerializeToString(), "tensorflow.GraphDef")
    assert {(each.name, each.holder) for each in found} == {
        ("a/b", "const"),
        ('node[0].attr["other"].list.tensor[0]', "attr"),
        ("f/c", "function_const"),
        ("/d", "function_const"),
        ('library.function[0].attr["x"].tensor', "attr"),
    }
    function_alone = tensors(function.SerializeToString(), "tensorflow.FunctionDef")
    assert "f/c" in {each.name for each in function_alone}
    node_alone = tensors(graph.node[0].SerializeToString(), "tensorflow.NodeDef")
    assert ("a/b", "const") in {(each.name, each.holder) for each in node_alone}


def test_kinds_say_where_a_tensor_stands_whatever_keys_say() -> None:
    meta = message("tensorflow.MetaGraphDef")
    meta.signature_def["s"].defaults["x"].dtype = 1
    odd = 'q"].x.signature_def["s"].defaults["'
    meta.graph_def.node.add(name="n").attr[odd].list.tensor.add(dtype=1)
    meta.signature_def[".attr[0]"].defaults["y"].dtype = 1
    meta.graph_def.library.function.add().signature.attr.add().default_value.tensor.dtype = 1
    found = tensors(meta.SerializeToString(), "tensorflow.MetaGraphDef")
    assert sorted(each.holder for each in found) == ["attr", "attr", "signature_default", "signature_default"]
    assert [each.holder for each in tensors(b"\x08\x01", "tensorflow.TensorProto")] == ["tensor"]


def test_signatures_functions_and_nodes_are_in_the_tree_by_name() -> None:
    with open_model(MODELS / "tf_sm_functions") as model:
        assert model.model.proto is not None
        document = model.model.proto.document

        def steps(path: str) -> list[str]:
            return [row[0] for row in document.children(path)[0]]

        signatures = expected("tf_sm_functions")["signatures"]
        named = [f'["{name}"]' for name in signatures]
        assert sorted(steps("meta_graphs[0].signature_def")) == sorted(named)
        const = 'meta_graphs[0].graph_def.node[name="Const"]'
        assert document.view(f"{const}.op")[2].size == len(b"Const")
        assert document.view('meta_graphs[0].signature_def["other"].inputs["q"].name')[0] == "string"


@pytest.mark.parametrize("case", ["tf_ckpt_sharded", "tf_ckpt_v1_partitioned"])
def test_the_graph_beside_a_checkpoint(case: str) -> None:
    for also in expected(case)["also"]:
        with open_model(MODELS / case, also["root"]) as model:
            for each in also["tensors"]:
                tensor = model.tensor(each["where"])
                assert tensor.dtype is not None
                assert (tensor.name, tensor.dtype.name, list(tensor.shape or ())) == (
                    each["name"],
                    each["dtype"],
                    each["shape"],
                )
                if "values_b64" in each:
                    assert strings(tensor) == [base64.b64decode(value) for value in each["values_b64"]]
                else:
                    assert hashlib.sha256(elements(tensor)).hexdigest() == each["sha256"]


# Warm-up requests


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", masked(crc32c(length))) + record + struct.pack("<I", masked(crc32c(record)))


def requests(data: bytes) -> list[Tensor]:
    model = Model("tf_serving_warmup_requests", "tensorflow.serving.PredictionLog", {}, None)
    model = Model(model.root, model.type, {model.root: BytesSource(data)}, None)
    found = tensors_of(model)
    return [found[number] for number in range(len(found))]


def test_warm_up_requests_are_those_that_tensorflow_wrote() -> None:
    (also,) = expected("tf_sm_functions")["also"]
    with open_model(MODELS / "tf_sm_functions", also["root"]) as model:
        due = [(number, each) for number, record in enumerate(also["records"]) for each in record["tensors"]]
        assert len(model.tensors) == len(due)
        for number, each in due:
            tensor = model.tensor(each["where"].replace("path:", f"path:record[{number}]."))
            assert tensor.dtype is not None
            shown = (tensor.name, tensor.dtype.name, list(tensor.shape or ()), tensor.holder)
            assert shown == (each["name"], each["dtype"], each["shape"], "request")
            assert hashlib.sha256(elements(tensor)).hexdigest() == each["sha256"]


def test_records_that_are_damaged_are_told_with_their_place() -> None:
    log = schema.bundled().message_class("tensorflow.serving.PredictionLog")()
    whole = framed(log.SerializeToString()) + framed(b"\x3a\x00")
    assert requests(whole) == []
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    with pytest.raises(CorruptModel, match="checksum") as caught:
        requests(bytes(flipped))
    assert not isinstance(caught.value, IntegrityError)
    assert caught.value.offset == 16
    for cut in (whole[:-1], whole[:20]):
        with pytest.raises(CorruptModel) as cut_off:
            requests(cut)
        assert cut_off.value.offset == 16
    with pytest.raises(CorruptModel, match="length of a record does not match its checksum"):
        requests(b"\xff" + whole[1:])


# Texts


def test_a_text_is_its_message() -> None:
    with open_model(MODELS / "tf_sm_pbtxt") as model:
        assert model.model.type == "tensorflow.SavedModel"
        assert {each.name for each in formats_of(model.model)} == {"tensor bundle", "tensorflow"}
        assert model.tensor("Const").file == "saved_model.pbtxt"


@pytest.mark.parametrize(
    ("text", "match", "offset"),
    [
        (b'node {\n  name: "a"\n  nome: "b"\n}\n', "line 3, column 3", 21),
        (b'node {\n  name: "\xc3\xa9" no: 1 }', "line 2", None),
        (b'node { name: "a" ', "line 1", None),
        (b'node { name: "\xff" }', "UTF-8", 14),
        (b"library {" * 3 + b"}" * 3, "line 1, column 10", 9),
    ],
)
def test_a_text_that_does_not_parse_says_where(text: bytes, match: str, offset: int | None) -> None:
    with pytest.raises(CorruptModel, match=match) as caught:
        schema.serialized(text, schema.bundled().kept("tensorflow.GraphDef"))
    assert offset is None or caught.value.offset == offset


def test_a_text_may_be_nested_only_so_deep() -> None:
    nested = b"list_value { values { " * 5000
    with pytest.raises(CorruptModel):
        schema.serialized(nested, schema.bundled().kept("tensorflow.StructuredValue"))


def test_a_text_may_be_only_so_long() -> None:
    with pytest.raises(LimitExceeded, match="binary form"):
        schema.check_text_size((64 << 20) + 1)


# Every data type with every field of values: the elements equal those that TensorFlow reads.

KEPT: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("typed_fields.json").read_text())
"""Elements that TensorFlow reads, by data type and field; the file says how it was made."""
CASES: Final = [(name, each) for name, row in KEPT["dtypes"].items() for each in row if each != "number"]


def _raw(message: bytes) -> bytes:
    model = open_model({"t.pb": BytesSource(message)}, type="tensorflow.TensorProto")
    return read(model.tensors[0], compare=False).bytes.read()


def _proto(number: int, name: str) -> Any:
    proto: Any = schema.bundled().message_class("tensorflow.TensorProto")()
    proto.dtype = number
    proto.tensor_shape.dim.add(size=3)
    values = KEPT["values"][name]
    if isinstance(values, str):
        setattr(proto, name, bytes.fromhex(values))
    else:
        getattr(proto, name).extend(values)
    return proto


def _one_by_one(proto: Any, name: str) -> bytes:
    """Return the message with its values in separate fields, as writers of proto2 do."""
    packed = getattr(proto, name)
    if isinstance(packed, bytes):
        return bytes(proto.SerializeToString())
    number = proto.DESCRIPTOR.fields_by_name[name].number
    width = {"float_val": 4, "scomplex_val": 4, "double_val": 8, "dcomplex_val": 8}.get(name)
    del packed[1:]
    content = b""
    for value in KEPT["values"][name]:
        packed[0] = value
        alone = type(proto)()
        getattr(alone, name).append(value)
        values = alone.SerializeToString()[len(varint(number << 3 | 2)) + 1 :]
        content += varint(number << 3 | {None: 0, 4: 5, 8: 1}[width]) + values
    proto.ClearField(name)
    return bytes(proto.SerializeToString()) + content


def _narrow(name: str, elements: bytes) -> bytes:
    """Return `elements` as TensorFlow holds them: signs of integers narrower than a byte are extended."""
    bits = {"int4": 4, "int2": 2}.get(name)
    if bits is None:
        return elements
    return bytes((each ^ 1 << bits - 1) - (1 << bits - 1) & 0xFF for each in elements)


@pytest.mark.parametrize(("name", "of"), CASES)
def test_elements_are_those_that_tensorflow_reads(name: str, of: str) -> None:
    row = KEPT["dtypes"][name]
    expected = _narrow(name, bytes.fromhex(row[of]))
    proto = _proto(row["number"], of)
    assert _raw(proto.SerializeToString()) == expected
    assert _raw(_one_by_one(proto, of)) == expected


def test_every_data_type_is_compared() -> None:
    kept = {row["number"] for row in KEPT["dtypes"].values()}
    assert kept == {number for number, dtype in TYPES.items() if dtype.bits}
    numeric = {each.name for each in schema.bundled().descriptor("tensorflow.TensorProto").fields}
    assert {name for name in numeric if name.endswith("_val")} - KEPT["values"].keys() == {
        "string_val",
        "resource_handle_val",
        "variant_val",
    }


def test_a_type_without_a_field_is_not_read_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, 1, TYPES[1].__class__("NEW", 32))
    with pytest.raises(Exception, match="NEW"):
        _raw(_proto(1, "float_val").SerializeToString())


# TensorBoard's event files: their type, their records, and the tensors of their summaries.

EVENT: Any = schema.bundled().message_class("tensorflow.Event")
NAME = "events.out.tfevents.1700000000.host.1.0.v2"


def events() -> list[bytes]:
    """Return events as TensorFlow 2 writes them: the version of the file, a scalar, a histogram."""
    first = EVENT(wall_time=1.7e9, file_version="brain.Event:2")
    scalar = EVENT(wall_time=1.7e9, step=1)
    value = scalar.summary.value.add(tag="loss")
    value.tensor.dtype = 1
    value.tensor.tensor_shape.SetInParent()
    value.tensor.float_val.append(0.5)
    value.metadata.plugin_data.plugin_name = "scalars"
    histogram = EVENT(wall_time=1.7e9, step=2)
    value = histogram.summary.value.add(tag="weights")
    value.tensor.dtype = 2
    for length in (1, 3):
        value.tensor.tensor_shape.dim.add(size=length)
    value.tensor.tensor_content = bytes(24)
    return [each.SerializeToString() for each in (first, scalar, histogram)]


def test_tensors_of_summaries_are_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(FRAMED["tfrecord"](events()))
    with open_model(tmp_path / NAME) as model:
        assert model.model.type == "tensorflow.Event"
        assert [(each.address, each.holder, each.shape) for each in model.matching()] == [
            ("path:record[1].summary.value[0].tensor", "summary", ()),
            ("path:record[2].summary.value[0].tensor", "summary", (1, 3)),
        ]
        assert model.read("path:record[1].summary.value[0].tensor").read() == b"\0\0\0?"


def test_an_event_file_is_known_by_its_name() -> None:
    data = FRAMED["tfrecord"](events())
    assert detect(data, f"logs/{NAME}", len(data)).type_name == "tensorflow.Event"
    assert detect(data, "records", len(data)).kind == "tfrecord"


def test_records_with_tensors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_MOST_RECORDS", 2)
    (tmp_path / NAME).write_bytes(FRAMED["tfrecord"](events()))
    with open_model(tmp_path / NAME) as model, pytest.raises(LimitExceeded, match="more than 2 records"):
        len(model.tensors)


# Tags choose the tensors of one meta graph.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel of three meta graphs."""
    return write_meta_graphs(tmp_path_factory.mktemp("saved"))


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_a_model_has_the_tensors_of_its_meta_graph_and_the_variables(folder: Path, number: int) -> None:
    with protoslice.open_model(folder) as model:
        found = model.tagged(GRAPHS[number][::-1])
        assert sorted(found) == sorted(["w", f"own{number}", "v"])
        assert np.frombuffer(found.read("w").read(), "<f4").tolist() == VALUES[number].tolist()
        assert found.tensor(found.tensor("w").address).address == f"path:meta_graphs[{number}].graph_def" + (
            '.node[0].attr["value"].tensor'
        )
        assert len(list(model)) == 7
        with pytest.raises(NotFound, match="own"):
            found.tensor(f"own{(number + 1) % 3}")


def test_tags_that_no_meta_graph_has_are_told_with_those_that_are_there(folder: Path) -> None:
    with (
        protoslice.open_model(folder) as model,
        pytest.raises(NotFound, match=r"tags tpu; available: serve, serve,gpu, \(none\)"),
    ):
        list(model.tagged(["tpu"]))
    alone = protoslice.open_model(folder / "variables" / "variables.index")
    with alone, pytest.raises(Unsupported, match="has tags, not"):
        list(alone.tagged(["serve"]))


def saved_model(*tags: tuple[str, ...], each: int = 2) -> Any:
    """Return a SavedModel with a meta graph for each of `tags`; each graph has `each` signatures."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    for number, of in enumerate(tags):
        graph = model.meta_graphs.add()
        graph.meta_info_def.tags.extend(of)
        graph.graph_def.node.add(name="large").attr["value"].s = bytes(20_000)
        for signature in range(each):
            called = graph.signature_def[f"call{signature}"]
            called.method_name = f"method{number}"
            put = called.inputs["images"]
            put.name, put.dtype = "images:0", 1
            put.tensor_shape.dim.add(size=-1)
            put.tensor_shape.dim.add(size=224)
            called.inputs["table"].dtype = 20
            called.outputs["scores"].coo_sparse.values_tensor_name = "values:0"
            called.outputs["scores"].dtype = 2
            called.outputs["scores"].tensor_shape.unknown_rank = True
            called.defaults["images"].tensor_content = bytes(200_000)
    return model


def due(model: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for graph in model.meta_graphs:
        for name in sorted(graph.signature_def):
            yield name, graph.signature_def[name].method_name, tuple(graph.meta_info_def.tags)


def opened(tmp_path: Path, model: Any) -> protoslice.LocalModel:
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    return protoslice.open_model(tmp_path / "saved_model.pb")


def test_signatures_are_listed(tmp_path: Path) -> None:
    model = saved_model(("serve",), ("serve", "gpu"), ())
    with opened(tmp_path, model) as local:
        found = list(local.signatures())
    assert [(each.name, each.method, each.tags) for each in found] == list(due(model))
    assert found[0] == Signature(
        "call0",
        "method0",
        ("serve",),
        (
            SignatureTensor("images", "images:0", "F32", (None, 224)),
            SignatureTensor("table", None, None, ()),
        ),
        (SignatureTensor("scores", None, "F64", None),),
    )


def test_a_meta_graph_is_chosen_by_exactly_its_tags(tmp_path: Path) -> None:
    with opened(tmp_path, saved_model(("serve", "gpu"), ("serve",), (), ('a"\\b',))) as local:
        chosen = {tags: {each.method for each in local.signatures(tags)} for tags in [("serve",), ("gpu", "serve"), ()]}
        assert chosen == {("serve",): {"method1"}, ("gpu", "serve"): {"method0"}, (): {"method2"}}
        assert {each.method for each in local.signatures(['a"\\b'])} == {"method3"}
        with pytest.raises(NotFound):
            list(local.signatures(["gpu"]))


def test_a_meta_graph_by_itself(tmp_path: Path) -> None:
    graph = saved_model(("serve",)).meta_graphs[0]
    (tmp_path / "graph.meta").write_bytes(graph.SerializeToString())
    with protoslice.open_model(tmp_path / "graph.meta", type="tensorflow.MetaGraphDef") as local:
        assert [each.name for each in local.signatures()] == ["call0", "call1"]
        assert len(list(local.signatures(["serve"]))) == 2
        with pytest.raises(NotFound, match="has the tags"):
            list(local.signatures(["gpu"]))


def test_other_models_have_none(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(saved_model(()).meta_graphs[0].graph_def.SerializeToString())
    with (
        protoslice.open_model(tmp_path / "graph.pb", type="tensorflow.GraphDef") as local,
        pytest.raises(Unsupported, match=r"Signatures of tensorflow\.GraphDef are not"),
    ):
        local.signatures()


def test_too_many_are_refused(tmp_path: Path) -> None:
    model = saved_model(("serve",), each=1)
    model.meta_graphs[0].signature_def["call0"].inputs["images"].name = "x" * (4 << 20)
    with opened(tmp_path, model) as local, pytest.raises(LimitExceeded, match="are listed"):
        list(local.signatures())


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_hold_every_signature_once(limit: int) -> None:
    model = saved_model(*[("serve",)] * 3, *[()] * 70, ("gpu",), each=2)
    for graph in list(model.meta_graphs)[3:-1]:
        graph.signature_def.clear()
    proto = protoslice.open(model.SerializeToString(), "tensorflow.SavedModel")
    whole = Model("saved_model.pb", proto.type, {}, RootProto(proto.document, proto.sources))
    found, cursor, pages = list[Signature](), None, 0
    while pages == 0 or cursor is not None:
        page = signatures_page(whole, None, limit, cursor)
        assert len(page.items) <= limit
        found, cursor, pages = [*found, *page.items], page.next, pages + 1
    assert [(each.name, each.method, each.tags) for each in found] == list(due(model))
    assert pages > 1  # 70 meta graphs without a signature are too many for one page

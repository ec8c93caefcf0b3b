"""Protos in text format: the file stays the text, every other view is of the message."""

import hashlib

import pytest
from tests.support.golden import MODELS
from tests.support.stores import assert_whole, read, upload, visible

from protoslice import schema
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.stores import IngestRequest, Stores
from protoslice.views import documents, tensors

TEXT_MODEL = MODELS / "tf_sm_pbtxt"
TEXT = b'node { name: "a" op: "Const" }\nversions { producer: 9 }\n'


def binary(text: bytes, type_name: str) -> bytes:
    return schema.serialized(text, schema.bundled().kept(type_name))


async def test_a_saved_model_in_text(stores: Stores) -> None:
    paths = [path for path in TEXT_MODEL.rglob("*") if path.is_file() and path.name not in {"expected.json", "how.txt"}]
    files = {path.relative_to(TEXT_MODEL).as_posix(): path.read_bytes() for path in paths}
    text = files["saved_model.pbtxt"]
    created = await upload(stores, files, IngestRequest(min_chunk=2000, max_chunk=20_000))
    assert (created.store.type, created.store.root) == ("tensorflow.SavedModel", "saved_model.pbtxt")
    assert created.store.chunks > 1
    views = await assert_whole(stores, created.store)
    assert views["file saved_model.pbtxt"] == text
    assert views["merge"] == binary(text, "tensorflow.SavedModel")
    again = await upload(stores, files, IngestRequest(min_chunk=2000, max_chunk=20_000))
    assert (again.created, again.store.id) == (False, created.store.id)
    found = await tensors.page((await stores.view(created.store.id)), name=None, dtype=None, limit=100, cursor=None)
    names = [item.name for item in found.items]
    assert "Const" in names
    assert "a/.ATTRIBUTES/VARIABLE_VALUE" in names


@pytest.mark.parametrize("request_", [IngestRequest(), IngestRequest(type="tensorflow.GraphDef")])
async def test_a_graph_in_text(stores: Stores, request_: IngestRequest) -> None:
    created = await upload(stores, {"graph.pbtxt": TEXT}, request_)
    views = await assert_whole(stores, created.store)
    assert views["merge"] == binary(TEXT, "tensorflow.GraphDef")
    assert views["file graph.pbtxt"] == TEXT
    assert created.store.files[0].sha256 == hashlib.sha256(TEXT).hexdigest()


async def test_a_text_that_is_broken_says_where_and_leaves_no_store(stores: Stores) -> None:
    with pytest.raises(CorruptModel, match="line 2, column 12") as caught:
        await upload(stores, {"graph.pbtxt": TEXT.replace(b"producer", b"produzer")})
    assert caught.value.offset == 42
    with pytest.raises(Unsupported, match="nknown message type"):
        await upload(stores, {"graph.pbtxt": TEXT}, IngestRequest(type="tensorflow.GraphDeff"))
    assert not (await stores.list()).items


async def test_a_text_that_nobody_called_a_proto_stays_a_text(stores: Stores) -> None:
    created = await upload(stores, {"notes": TEXT.replace(b"producer", b"produzer")})
    assert created.store.chunks == 0


async def test_an_empty_message_has_no_bytes(stores: Stores) -> None:
    created = await upload(stores, {"g.pbtxt": b"# nothing\nnode { }"}, IngestRequest(type="tensorflow.GraphDef"))
    assert (await assert_whole(stores, created.store))["merge"] == b"\x0a\x00"


async def test_long_text_is_parsed_by_another_process(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this one it would hold the interpreter's lock, and with it every other request, for seconds."""

    def refuse(*_: object) -> None:
        raise AssertionError("a long text was parsed in the process of the service")

    text = b'doc_string: "' + b"\\001" * 40_000 + b'"'
    monkeypatch.setattr("google.protobuf.text_format.Parse", refuse)
    info = (await upload(stores, {"m.pbtxt": text}, IngestRequest(type="onnx.ModelProto"))).store
    merged = await documents.merge((await stores.view(info.id)), "doc_string", None, None)
    assert await read(merged) == b"\x01" * 40_000
    with pytest.raises(CorruptModel, match="line 1, column"):
        await upload(stores, {"m.pbtxt": text + b" node"}, IngestRequest(type="onnx.ModelProto"))


async def test_a_text_that_takes_too_much_is_refused_and_nothing_is_stored(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protoslice.schema.text_worker.sys.executable", "/bin/false")
    text = b'doc_string: "' + b"x" * 100_000 + b'"'
    with pytest.raises(LimitExceeded, match="binary format"):
        await upload(stores, {"m.pbtxt": text}, IngestRequest(type="onnx.ModelProto"))
    assert await visible(stores) == {}

"""Protos in text format: the file stays the text, and every other view shows the message.

Files that decode to many more bytes are bounded before they are decoded. Rules of an upload, or rules saved for a type,
decide a store's chunks, and are part of the store's id.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.chunked import METADATA, chunked
from tests.support.golden import CHUNKED, MODELS
from tests.support.stores import assert_whole, in_files, in_memory, onnx, open_stores, opened, read, upload, visible

import protoslice
from protoslice import _core, schema
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.facts import Store
from protoslice.ingest.root import DecodedBytes
from protoslice.library.opening import open_proto
from protoslice.riegeli import RecordWriter
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.versions import Policy, is_id_of, store_id
from protoslice.views import chunks, documents, tensors

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
    """In this process it would hold the interpreter's lock, and so every other request, for seconds."""

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


MIB = 1 << 20
CODECS = ["brotli", "zstd", "snappy", "transpose"]
DOC_STRING = 6


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of the pieces that were decoded and written."""
    lengths: list[int] = []
    inner = DecodedBytes.write

    def write(self: DecodedBytes, data: bytes) -> None:
        lengths.append(len(data))
        inner(self, data)

    monkeypatch.setattr(DecodedBytes, "write", write)
    return lengths


def doc(model: bytes, size: int, options: str) -> bytes:
    """Return a chunked model with a string of `size` zeros in a separate chunk."""
    return chunked([model, bytes(size)], 0, ([DOC_STRING], 1), options=options)


def refuses(file: bytes, options: StoreOptions | None = None) -> str:
    """Return the message with which `file` is refused."""

    async def work(stores: Stores, _: MemoryStorage) -> str:
        with pytest.raises(LimitExceeded) as refused:
            await upload(stores, {"model.cpb": file})
        return refused.value.message

    return in_memory(work, options)


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_file_decodes_to_counts_against_the_upload(codec: str, written: list[int]) -> None:
    file = doc(onnx(1000), 4 * MIB, codec)
    assert len(file) < MIB // 2
    message = refuses(file, StoreOptions(max_upload_bytes=MIB))
    assert str(len(file)) in message, message
    assert str(MIB - len(file)) in message, message
    assert sum(written) <= MIB - len(file)


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_byte_may_stand_for(codec: str, written: list[int]) -> None:
    """A short file does not fill a disk, for any limit of uploads."""
    message = refuses(doc(onnx(1000), 200 * MIB, codec))
    assert re.search(r"decodes? to 2097\d{5}\b", message), message
    assert re.search("send it without compression|raise the limit", message), message
    assert sum(written) <= 64 * MIB


@pytest.mark.parametrize("codec", ["brotli", "zstd"])
def test_a_long_record_comes_in_pieces(codec: str, written: list[int]) -> None:
    model = onnx(MIB)

    async def work(stores: Stores, _: MemoryStorage) -> None:
        made = (await upload(stores, {"model.cpb": doc(model, 100 * MIB, codec)})).store
        shown = await documents.merge((await stores.view(made.id)), "doc_string", None, None)
        assert await read(shown) == bytes(100 * MIB)

    in_memory(work)
    assert sum(written) > 100 * MIB
    assert max(written) <= MIB


def written_by_hand(records: list[bytes], metadata: Callable[[list[int]], Any], options: str) -> bytes:
    """Return a chunked file whose `metadata` are made from the places of the records."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        places = []
        for record in records:
            writer.write_record(record)
            places.append(writer.last_pos.numeric)
        writer.write_message(metadata(places))
    return out.getvalue()


def test_a_chunk_named_again_and_again() -> None:
    """Each mention of the chunk is a copy in the merged proto, which takes time and memory to index."""

    def in_chunks(places: list[int]) -> Any:
        chunks = [{"offset": places[0], "type": 1}, *([{"offset": places[1], "type": 1}] * 40)]
        return METADATA(chunks=chunks, message={"chunk_index": 0})

    def in_fields(places: list[int]) -> Any:
        field = {"field_tag": [{"field": DOC_STRING}], "message": {"chunk_index": 1}}
        chunks = [{"offset": place, "type": 1} for place in places]
        return METADATA(chunks=chunks, message={"chunk_index": 0, "chunked_fields": [field] * 40})

    for metadata in (in_chunks, in_fields):
        assert "too often" in refuses(written_by_hand([onnx(1000), bytes(MIB)], metadata, "uncompressed"))


@pytest.mark.parametrize("codec", CODECS)
def test_metadata_that_are_longer_than_the_file(codec: str) -> None:
    """Two bytes of metadata take 24 of memory."""
    metadata = METADATA(chunks=[{}] * (2 * MIB), message={"chunk_index": 0})
    file = written_by_hand([onnx(1000)], lambda places: metadata, codec)
    assert len(file) < 200_000
    with pytest.raises(Unsupported, match="too many for the metadata"):
        open_proto(file)


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_nothing_names(codec: str) -> None:
    """An empty record takes a byte of the file, and eight of memory."""
    records = [onnx(1000), *[b""] * 100_000]
    metadata = METADATA(chunks=[{"type": 1}], message={"chunk_index": 0})

    def placed(places: list[int]) -> Any:
        metadata.chunks[0].offset = places[0]
        return metadata

    file = written_by_hand(records, placed, f"{codec},chunk_size:10000000")
    assert "but the metadata lists fewer" in refuses(file)


def test_a_text_that_stands_for_more_than_the_upload_may_have() -> None:
    """A packed number of eight bytes takes three in a text."""
    text = b"double_data: [" + b"1," * 100_000 + b"1]"
    options = StoreOptions(max_upload_bytes=len(text) + 50_000)

    async def work(stores: Stores, _: MemoryStorage) -> None:
        with pytest.raises(LimitExceeded, match="room for 50000"):
            await upload(stores, {"tensor.pbtxt": text}, IngestRequest(type="onnx.TensorProto"))

    in_memory(work, options)


GRAPH = (CHUNKED / "graph_many_nodes.pb").read_bytes()
FILES = {"graph.pb": GRAPH}
RULES = ("node : every 100", "versions: always")
CANONICAL = ("node: every 100", "versions: always")
REQUEST = IngestRequest(type="tensorflow.GraphDef", rules=RULES)


async def paths(stores: Stores, store: Store) -> list[str]:
    """Return the paths of a store's chunks."""
    page = await chunks.chunks((await stores.view(store.id)), limit=10_000, cursor=None)
    return [entry.path for entry in page.items]


def test_a_store_has_the_chunks_of_its_rules() -> None:
    with protoslice.open(GRAPH, "tensorflow.GraphDef") as proto:
        due = {chunk.path: chunk.rope.read() for chunk in proto.split(rules=RULES)}

    async def work(stores: Stores, storage: FileStorage) -> None:
        made = (await upload(stores, FILES, REQUEST)).store
        assert (made.rules, made.chunks, len(due) > 2) == (CANONICAL, len(due), True)
        async with opened(storage) as others:
            assert await paths(others, made) == list(due)
            assert (await others.get(made.id)).rules == CANONICAL
            view = await others.view(made.id)
            assert [await read(await chunks.chunk(view, n)) for n in range(made.chunks)] == list(due.values())
            assert await read(await documents.merge(view, "", None, None)) == GRAPH

    in_files(work)


async def test_the_rules_are_named_in_the_id(stores: Stores) -> None:
    plain = (await upload(stores, FILES, replace(REQUEST, rules=None))).store
    ruled = (await upload(stores, FILES, REQUEST)).store
    same = await upload(stores, FILES, replace(REQUEST, rules=CANONICAL))
    other = (await upload(stores, FILES, replace(REQUEST, rules=CANONICAL[::-1]))).store
    assert len({plain.id, ruled.id, other.id}) == 3
    assert (same.store.id, same.created) == (ruled.id, False), "spaces in a rule say nothing"
    assert (await upload(stores, FILES, replace(REQUEST, rules=()))).store.id == plain.id
    for store in (plain, ruled):
        files = [(file.path, file.size, file.sha256 or "") for file in store.files]
        policy = Policy(
            root=store.root,
            type=store.type,
            min_chunk=store.min_chunk,
            max_chunk=store.max_chunk,
            schema=store.schema,
            planner=store.planner,
            rules=store.rules,
        )
        assert store_id(files, policy) == store.id
        assert is_id_of(store.id, files, policy)
        assert not is_id_of(store.id, files, replace(policy, rules=("node: never",)))


def test_rules_kept_by_type_are_for_roots_that_come_without() -> None:
    kept = StoreOptions(rules={"tensorflow.GraphDef": RULES, "onnx.ModelProto": ["graph: whole"]})

    async def work(_: Stores, storage: Storage) -> None:
        stores = await open_stores(storage, kept)
        try:
            by_type = (await upload(stores, FILES, replace(REQUEST, rules=None))).store
            assert by_type.rules == CANONICAL
            assert (await upload(stores, FILES, REQUEST)).store.id == by_type.id
            assert (await upload(stores, FILES, replace(REQUEST, rules=("node: never",)))).store.rules == (
                "node: never",
            )
            assert (await upload(stores, FILES, replace(REQUEST, rules=()))).store.rules == ()
            assert (await upload(stores, FILES, replace(REQUEST, type="unknown", rules=None))).store.rules == ()
        finally:
            await stores.close()

    in_memory(work)


def test_a_chunked_root_keeps_its_plan_unless_rules_are_given() -> None:
    files = {"graph.cpb": (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()}
    kept = StoreOptions(rules={"tensorflow.GraphDef": RULES})

    async def work(_: Stores, storage: Storage) -> None:
        stores = await open_stores(storage, kept)
        try:
            came = (await upload(stores, files)).store
            assert (came.planner, came.rules) == (_core.Plan.KEPT_VERSION, ())
            ruled = (await upload(stores, files, IngestRequest(rules=CANONICAL))).store
            assert (ruled.planner, ruled.rules) == (_core.Plan.MERGED_VERSION, CANONICAL)
            assert "versions" in await paths(stores, ruled)
        finally:
            await stores.close()

    in_memory(work)


@pytest.mark.parametrize(
    ("files", "rules", "error", "said"),
    [
        (FILES, ("node: every 0",), InvalidInput, "at character 6"),
        (FILES, ("nodes: every 5",), NotFound, "has no field nodes"),
        (
            {"words.txt": b"no proto at all"},
            ("node: never",),
            Unsupported,
            "pass its type",
        ),
    ],
    ids=["syntax", "path", "no proto"],
)
async def test_rules_that_cannot_apply_store_nothing(
    stores: Stores, files: dict[str, bytes], rules: tuple[str, ...], error: type[ProtosliceError], said: str
) -> None:
    with pytest.raises(error, match=said):
        await upload(stores, files, IngestRequest(rules=rules))
    assert not (await stores.list()).items


@pytest.mark.parametrize(
    ("type_name", "rule", "said"),
    [
        ("tensorflow.GraphDef", "node: every 0", "default rules for tensorflow.GraphDef: .*at character 6"),
        ("tensorflow.GraphDef", "nodes: never", "default rules for tensorflow.GraphDef: .*no field nodes"),
        ("mine.Own", "node: often", "default rules for mine.Own: .*at character 6"),
    ],
)
def test_kept_rules_are_checked_when_the_service_starts(type_name: str, rule: str, said: str) -> None:
    async def work(_: Stores, storage: Storage) -> None:
        with pytest.raises(ProtosliceError, match=said) as refused:
            await open_stores(storage, StoreOptions(rules={type_name: [rule]}))
        assert rule.partition(":")[0] in str(refused.value.path)

    in_memory(work)

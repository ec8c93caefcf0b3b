"""Stores of files without a proto: they are whole, but lack the views of a proto."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from tests.support.protos.writer import varint
from tests.support.stores import assert_whole, field, in_files, in_memory, onnx, opened, read, upload
from tests.support.streams import FRAMED

from protoslice.catalog.store_lists import StoreQuery
from protoslice.errors import CorruptModel, NoRoot, NotFound, ProtosliceError, Unsupported
from protoslice.riegeli import RecordWriter
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents, tensors
from protoslice.views.pieces import table_of

PICKLE = b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s."
TREE = {
    "README.md": b"# A model\n\nof nothing in particular\n",
    "config.json": json.dumps({"hidden_size": 16}).encode(),
    "pytorch_model.bin": PICKLE,
    "weights.bin": Random(3).randbytes(100_000),
    "logo.png": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "empty": b"",
}


def records(count: int) -> bytes:
    """Return a riegeli file of plain records."""
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        for number in range(count):
            writer.write_record(b"\x0a\x05hello" + b"\x20" + varint(number))
    return out.getvalue()


@pytest.mark.parametrize("where", [in_memory, in_files])
def test_a_tree_without_a_proto_is_a_store(where: Callable[..., None]) -> None:
    async def work(stores: Stores, _: object) -> None:
        created = await upload(stores, TREE, IngestRequest(tags=("tree",)))
        info = created.store
        assert (created.created, info.root, info.type, info.chunks, info.schema, info.planner) == (
            True, None, None, 0, None, None
        )  # fmt: skip
        assert info.why is not None
        assert info.why.startswith("none of the 6 files is in a supported format")
        assert "pass its path as root, and its type" in info.why
        assert await assert_whole(stores, info) == {f"file {path}": data for path, data in TREE.items()}
        assert (await stores.get("tree")) == info
        assert (info.root, info.type) == (None, None)
        assert [each.id for each in (await stores.list()).items] == [info.id]
        assert (await stores.list(StoreQuery(type="unknown"))).items == []
        again = await upload(stores, TREE)
        assert (again.store.id, again.created) == (info.id, False)
        pieces = (await table_of(await stores.view(info.id))).page(1000, None)
        assert {piece.file for piece in pieces.items} == {path for path, data in TREE.items() if data}

    where(work)


async def test_views_of_a_proto_say_that_there_is_none_and_why(stores: Stores) -> None:
    info = (await upload(stores, TREE)).store
    store = await stores.view(info.id)
    views: list[Callable[[], Awaitable[object]]] = [
        lambda: chunks.metadata(store),
        lambda: chunks.chunk(store, 0),
        lambda: chunks.chunks(store, limit=10, cursor=None),
        lambda: documents.tree(store, "", 1, 10, None),
        lambda: documents.merge(store, "", None, None),
        lambda: chunks.cpb(store),
        lambda: tensors.page(store, name=None, dtype=None, limit=10, cursor=None),
        lambda: tensors.one(store, "w", None, "raw"),
        lambda: tensors.safetensors(store, []),
    ]
    for view in views:
        with pytest.raises(NoRoot, match="no root proto: none of the 6 files"):
            await view()
    assert await read(store.file("weights.bin"), 5, 500) == TREE["weights.bin"][5:500]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("notes.txt", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", "a message in text"),
        ("readme", b"plain words, and nothing else", "plain text"),
        ("model.zip", b"PK\x03\x04" + bytes(100), "unpack it"),
        ("pytorch_model.bin", PICKLE, "never loaded, as loading it can run any code: save the weights as safetensors"),
        ("weights.bin", Random(1).randbytes(5000), "does not parse as a message"),
        ("zeros", bytes(5000), "does not parse as a message"),
        ("x.onnx", Random(2).randbytes(5000), r"the file name suggests onnx\.ModelProto"),
        ("x.riegeli", records(50), "a riegeli file of 50 records, not a chunked proto"),
        ("empty", b"", "file is empty"),
        ("config.json", b'{"a": 1}', "this is JSON; files of this kind are not supported as models"),
    ],
)  # fmt: skip
async def test_a_file_that_is_no_proto_is_kept_and_the_reason_is_said(
    stores: Stores, name: str, data: bytes, why: str
) -> None:
    info = (await upload(stores, {name: data})).store
    assert (info.root, info.type) == (None, None)
    assert info.why is not None
    assert info.why.startswith(f"{name} is not in a supported format (")
    assert why.replace("\\", "") in info.why
    assert await assert_whole(stores, info) == {f"file {name}": data}


@pytest.mark.parametrize("stream", [records(50), FRAMED["tfrecord"]([b"\x08\x01", b"\x08\x02"])])
async def test_the_reason_points_to_the_records_of_a_stream(stores: Stores, stream: bytes) -> None:
    alone = (await upload(stores, {"train": stream})).store
    assert alone.why is not None
    assert alone.why.endswith("pass its type. The records of train can be read at /records")
    beside = (await upload(stores, {"a/train": stream, "README.md": b"words"})).store
    assert beside.why is not None
    assert beside.why.endswith(". The records of a/train can be read at /records?file=a/train")
    without = (await upload(stores, {"README.md": b"words"})).store
    assert "records" not in str(without.why)


async def test_the_reason_outlives_the_process() -> None:
    storage = MemoryStorage()
    async with opened(storage) as stores:
        first = (await upload(stores, TREE)).store
    async with opened(storage) as stores:
        assert await stores.get(first.id) == first


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (IngestRequest(root="nothing"), NotFound),
        (IngestRequest(root="README.md"), Unsupported),
        (IngestRequest(root="weights.bin"), CorruptModel),
        (IngestRequest(root="weights.bin", type="onnx.ModelProto"), CorruptModel),
        (IngestRequest(root="pytorch_model.bin"), Unsupported),
        (IngestRequest(type="onnx.ModelProto"), ProtosliceError),
        (IngestRequest(root="x.riegeli"), Unsupported),
        (IngestRequest(root="x.riegeli", type="onnx.ModelProto"), Unsupported),
    ],
)
async def test_a_root_that_is_named_must_be_one(
    stores: Stores, request_: IngestRequest, error: type[ProtosliceError]
) -> None:
    with pytest.raises(error):
        await upload(stores, TREE | {"x.riegeli": records(9)}, request_)
    assert (await stores.list()).items == []


async def test_a_model_that_is_damaged_is_refused_whatever_lies_beside_it(stores: Stores) -> None:
    with pytest.raises(CorruptModel, match=r"model\.onnx"):
        await upload(stores, TREE | {"model.onnx": onnx(100, 5000)[:-100]})


@pytest.mark.parametrize("proto", [onnx(100), field(1250, b"abc") + b"\xe0\xa7\x12\x05"], ids=["known", "unknown"])
async def test_the_one_proto_of_a_tree_is_its_root(stores: Stores, proto: bytes) -> None:
    info = (await upload(stores, TREE | {"a": proto, "x.riegeli": records(9), "y.riegeli": records(8)})).store
    assert (info.root, info.why) == ("a", None)


async def test_objects_in_place_need_no_proto_either(tmp_path: Path) -> None:
    for path, data in TREE.items():
        (tmp_path / path).write_bytes(data)
    options = StoreOptions(register_prefixes=(f"file://{tmp_path}",))
    async with opened(MemoryStorage(), options) as stores:
        files = {path: f"file://{tmp_path}/{path}" for path in TREE}
        info = (await stores.register(files, IngestRequest())).store
        assert (info.root, info.type, info.source) == (None, None, "register")
        assert await assert_whole(stores, info) == {f"file {path}": data for path, data in TREE.items()}
        with pytest.raises(CorruptModel):
            await stores.register(files, IngestRequest(root="weights.bin"))

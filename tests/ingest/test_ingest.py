"""Every valid upload is accepted, and comes out unchanged.

Durable writes of an upload run in parallel, and all of them end before its only transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED, MODELS
from tests.support.interrupted import InterceptedDatabase
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    in_files,
    in_memory,
    keys_in,
    objects_in,
    onnx,
    opened,
    read,
    records_apart,
    upload,
    visible,
)

import protoslice
from protoslice import schema
from protoslice.catalog.manifest import LARGEST_HELD
from protoslice.catalog.store_lists import StoreQuery
from protoslice.database import Database
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, ProtosliceError, Unsupported
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import Created, IngestRequest, Stores
from protoslice.views import chunks, documents

SMALL = IngestRequest(min_chunk=20_000, max_chunk=100_000)
MODEL = onnx(100, 70_000, 300_000, 10)
FILES = {
    "functions.onnx": MODELS / "onnx_functions_training" / "model.onnx",
    "checkpoint.index": MODELS / "tf_ckpt_v1_partitioned" / "model.ckpt-17.index",
}


def golden(name: str) -> dict[str, bytes]:
    return {name: FILES.get(name, CHUNKED / name).read_bytes()}


def merged(data: bytes) -> bytes:
    """Return the whole proto that the library makes of a raw or chunked file."""
    with protoslice.open(data) as proto:
        return bytes(proto.merge())


def alike(one: bytes, other: bytes, type_name: str | None) -> bool:
    """Return True if both are the same message: a chunked file has a message's fields in another order."""
    message = schema.bundled().message_class(type_name or "")
    return message.FromString(one) == message.FromString(other)


async def taken(
    stores: Stores, files: dict[str, bytes], request: IngestRequest = SMALL
) -> tuple[Created, dict[str, bytes]]:
    created = await upload(stores, files, request)
    return created, await assert_whole(stores, created.store)


@pytest.mark.parametrize("where", [in_memory, in_files])
@pytest.mark.parametrize(
    ("name", "type_name"),
    [
        ("functions.onnx", "onnx.ModelProto"),
        ("graph_large_constants.pb", "tensorflow.GraphDef"),
        ("graph_many_nodes.pb", "tensorflow.GraphDef"),
        ("savedmodel_plain.pb", "tensorflow.SavedModel"),
    ],
)
def test_raw_protos(where: Callable[..., tuple[Created, dict[str, bytes]]], name: str, type_name: str) -> None:
    created, views = where(lambda stores, _: taken(stores, golden(name)))
    content = golden(name)[name]
    assert created.created
    assert (created.store.type, created.store.root, created.store.size) == (type_name, name, len(content))
    assert [(file.path, file.size, file.sha256) for file in created.store.files] == [
        (name, len(content), hashlib.sha256(content).hexdigest())
    ]
    assert views[f"file {name}"] == views["merge"] == content
    assert alike(merged(views["cpb"]), content, type_name)


@pytest.mark.parametrize("where", [in_memory, in_files])
@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("graph_large_constants.max100000.uncompressed.cpb", "graph_large_constants.pb"),
        ("graph_large_constants.max70000.zstd.cpb", "graph_large_constants.pb"),
        ("graph_many_nodes.max20000.cpb", "graph_many_nodes.pb"),
        ("savedmodel_plain.max4000.cpb", "savedmodel_plain.pb"),
    ],
)
def test_chunked_protos(where: Callable[..., tuple[Created, dict[str, bytes]]], name: str, original: str) -> None:
    created, views = where(lambda stores, _: taken(stores, golden(name)))
    assert views[f"file {name}"] == (CHUNKED / name).read_bytes()
    assert views["merge"] == merged((CHUNKED / name).read_bytes())
    assert alike(merged(views["cpb"]), views["merge"], created.store.type)
    library = b"\x12\x00" if original.startswith("graph") else b""  # the splitter adds an empty field to a graph
    assert alike(views["merge"], (CHUNKED / original).read_bytes() + library, created.store.type)


@pytest.mark.parametrize("name", ["checkpoint.index"])
async def test_tables_are_kept_as_files_alone(stores: Stores, name: str) -> None:
    files = golden(name)
    created, views = await taken(stores, files)
    assert created.store.chunks == 0
    assert views == {f"file {name}": files[name]}
    store = await stores.view(created.store.id)
    for view in (chunks.metadata(store), chunks.chunk(store, 0), chunks.cpb(store)):
        with pytest.raises(Unsupported, match="it has tensors, but no parts"):
            await view
    index = await documents.merge(store, "", None, None)
    assert index.message_type == "protoslice.TensorBundle"
    names = [node.path for node in (await documents.tree(store, "", 1, 10, None)).items]
    assert names[0] == "header"


async def test_a_type_that_is_named_beats_detection(stores: Stores) -> None:
    created, views = await taken(stores, {"x": MODEL}, IngestRequest(type="onnx.ModelProto"))
    assert created.store.type == "onnx.ModelProto"
    assert views["merge graph"] == bytes(protoslice.open(MODEL, type="onnx.ModelProto").merge("graph"))
    with pytest.raises(Unsupported, match=r"onnx\.ModelProto"):
        await upload(stores, MODEL, IngestRequest(type="onnx.ModelProt"))


async def test_what_nobody_knows_is_unknown(stores: Stores) -> None:
    strange = b"\x92\x4e\x03abc\x9a\x4e" + b"\xe0\xa7\x12" + bytes(300_000)
    created, views = await taken(stores, {"strange": strange})
    assert created.store.type == "unknown"
    assert views["merge"] == strange
    assert views["merge 1250"] == b"abc"
    assert [info.id for info in (await stores.list(StoreQuery(type="unknown"))).items] == [created.store.id]


async def test_unknown_may_be_asked_for(stores: Stores) -> None:
    created, views = await taken(stores, {"model.onnx": MODEL}, IngestRequest(type="unknown"))
    assert created.store.type == "unknown"
    assert views["merge"] == MODEL
    assert len(views["merge 7"]) > 300_000
    chunked = await upload(stores, golden("graph_many_nodes.max20000.cpb"), IngestRequest(type="unknown"))
    assert chunked.store.type == "unknown"
    await assert_whole(stores, chunked.store)


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_the_size_of_pieces_makes_no_difference(stores: Stores, piece: int) -> None:
    name = "savedmodel_plain.pb"
    first = await upload(stores, golden(name), piece=1 << 30)
    second = await upload(stores, golden(name), piece=piece)
    assert (first.store.id, first.created, second.created) == (second.store.id, True, False)


@pytest.mark.parametrize(
    ("paths", "root"),
    [
        (["variables/a.index", "saved_model.pb", "huge.onnx"], "saved_model.pb"),
        (["model/saved_model.pb", "readme.txt"], "model/saved_model.pb"),
        (["weights.bin", "net.onnx"], "net.onnx"),
    ],
)
async def test_the_root_of_several_files_is_found(stores: Stores, paths: list[str], root: str) -> None:
    plain = (CHUNKED / "savedmodel_plain.pb").read_bytes()
    contents = {
        "pb": plain,
        "onnx": MODEL,
        "index": FILES["checkpoint.index"].read_bytes(),
    }
    files = {path: contents.get(path.rpartition(".")[2], b"just a text") for path in paths}
    created, views = await taken(stores, files)
    assert created.store.root == root
    assert {file.path for file in created.store.files} == set(paths)
    assert views["merge"] == files[root]
    assert {path: views[f"file {path}"] for path in paths} == files


async def test_the_root_may_be_named(stores: Stores) -> None:
    files = {"a.onnx": onnx(10, seed=1), "b.onnx": onnx(20, seed=2)}
    request = IngestRequest(root="b.onnx", type="onnx.ModelProto")
    created, views = await taken(stores, files, request)
    assert created.store.root == "b.onnx"
    assert views["merge"] == files["b.onnx"]
    with pytest.raises(NotFound, match=r"c\.onnx"):
        await upload(stores, files, IngestRequest(root="c.onnx"))


def test_an_empty_file_is_a_file() -> None:
    async def work(stores: Stores, _: object) -> None:
        _, views = await taken(stores, {"model.onnx": MODEL, "empty": b""})
        assert views["file empty"] == b""
        alone, views = await taken(stores, {"empty.pb": b""}, IngestRequest(type="unknown"))
        assert (alone.store.size, views["merge"]) == (0, b"")

    in_memory(work)
    in_files(work)


async def test_the_id_comes_of_content_and_policy(stores: Stores) -> None:
    files = {"model.onnx": MODEL, "notes": b"text"}
    first = (await upload(stores, files, SMALL)).store.id
    turned = await upload(stores, dict(reversed(files.items())), SMALL)
    assert (turned.store.id, turned.created) == (first, False)
    other = [
        await upload(stores, files | {"notes": b"texT"}, SMALL),
        await upload(stores, {"model.onnx": MODEL, "note": b"text"}, SMALL),
        await upload(stores, files, IngestRequest(min_chunk=20_001, max_chunk=100_000)),
        await upload(stores, files, IngestRequest(min_chunk=20_000, max_chunk=100_001)),
        await upload(stores, files, IngestRequest(type="unknown", min_chunk=20_000, max_chunk=100_000)),
        await upload(stores, files, IngestRequest(root="notes", type="unknown", min_chunk=20_000, max_chunk=100_000))
        if False
        else await upload(stores, {"model.onnx": MODEL}, SMALL),
    ]
    assert len({first, *(created.store.id for created in other)}) == 7
    assert all(created.created for created in other)


async def test_what_is_there_already_is_found_and_leaves_nothing(stores: Stores, storage: MemoryStorage) -> None:
    first = await upload(stores, MODEL, IngestRequest(tags=("one",)))
    before = await objects_in(storage)
    again = await upload(stores, MODEL, IngestRequest(tags=("two",)))
    assert (again.created, again.store.id) == (False, first.store.id)
    assert again.store.tags == ("one", "two")
    assert again.store.created == first.store.created
    await collect_garbage(storage)
    assert await objects_in(storage) == before


async def test_a_copy_of_very_many_files_leaves_nothing_either(stores: Stores, storage: MemoryStorage) -> None:
    files = {"model.onnx": onnx(10)} | {f"assets/{n}": b"%d" % n for n in range(600)}
    await upload(stores, files)
    before = await objects_in(storage)
    assert not (await upload(stores, files)).created
    await collect_garbage(storage)
    assert await objects_in(storage) == before


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"model.onnx": MODEL[:-100]}, CorruptModel),
        ({"model.onnx": MODEL[:5000] + b"\xff" * 20 + MODEL[5020:]}, None),
        ({"x.cpb": (CHUNKED / "savedmodel_plain.max4000.cpb").read_bytes()[:3000]}, ProtosliceError),
    ],
)
async def test_what_is_broken_or_refused_is_not_visible(
    stores: Stores, storage: MemoryStorage, files: dict[str, bytes], error: type[ProtosliceError] | None
) -> None:
    if error is None:
        await upload(stores, files)  # the service does not check for damage inside of raw data
        return
    with pytest.raises(error):
        await upload(stores, files)
    assert await visible(stores) == {}
    await collect_garbage(storage, grace_seconds=0)
    assert await keys_in(storage) == ["protoslice.json"]


async def test_an_error_in_one_of_several_files_names_it(stores: Stores) -> None:
    with pytest.raises(CorruptModel, match=r"model\.onnx: "):
        await upload(stores, {"model.onnx": MODEL[:-100], "notes": b"text"})
    with pytest.raises(CorruptModel) as caught:
        await upload(stores, MODEL[:-100])
    assert caught.value.offset is not None


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\\b", "a\nb", "a\0", "x" * 1025, "\ud800"]
)
async def test_paths_that_lead_elsewhere(stores: Stores, path: str) -> None:
    async with await stores.ingest(IngestRequest()) as ingest:
        with pytest.raises(InvalidInput, match="path"):
            await ingest.file(path)
    with pytest.raises(InvalidInput, match="path"):
        await upload(stores, MODEL, IngestRequest(root=path))


@pytest.mark.parametrize(
    "path", ["model.onnx", "a b/ç/模型.pb", "...", "a/..b", "~", "%2e%2e", "x" * 1024, "a:b", "CON", "a?b#c&d=e"]
)
def test_paths_that_do_not(path: str) -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        created, views = await taken(stores, {path: MODEL}, IngestRequest(type="onnx.ModelProto"))
        assert created.store.root == path
        assert views[f"file {path}"] == MODEL

    in_files(work)


@pytest.mark.parametrize(
    "request_",
    [
        IngestRequest(min_chunk=0),
        IngestRequest(min_chunk=-1),
        IngestRequest(min_chunk=10, max_chunk=9),
        IngestRequest(tags=("good", "bad tag")),
        IngestRequest(tags=("",)),
        IngestRequest(tags=("a" * 129,)),
        IngestRequest(tags=("0123456789ab",)),
        IngestRequest(root="../x"),
    ],
)
async def test_requests_that_make_no_sense_are_refused_before_a_byte_is_taken(
    stores: Stores, request_: IngestRequest
) -> None:
    ingest = await stores.ingest(request_)
    with pytest.raises(InvalidInput):
        await ingest.__aenter__()


async def test_an_unknown_type_is_refused_before_a_byte_is_taken(stores: Stores) -> None:
    with pytest.raises(Unsupported, match=r"not\.a\.Type"):
        await stores.ingest(IngestRequest(type="not.a.Type"))


async def test_a_digest_that_does_not_match(stores: Stores) -> None:
    good = hashlib.sha256(MODEL).digest()
    with pytest.raises(InvalidInput, match="digest"):
        await upload(stores, MODEL, expected_sha256=bytes(32))
    assert await visible(stores) == {}
    with pytest.raises(InvalidInput, match="digest"):
        await upload(stores, {"model.onnx": MODEL, "more": b"x"}, expected_sha256=good)
    assert (await upload(stores, MODEL, expected_sha256=good)).created


def test_an_upload_has_a_limit_over_all_its_files() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        assert (await upload(stores, {"model.onnx": MODEL, "more": bytes(100)})).created
        with pytest.raises(LimitExceeded, match="The upload is too large: 'more' exceeds the 100 bytes"):
            await upload(stores, {"model.onnx": MODEL, "more": bytes(101)})
        assert len(await visible(stores)) == 1

    in_memory(work, StoreOptions(max_upload_bytes=len(MODEL) + 100))


async def test_files_come_one_after_another_and_once(stores: Stores) -> None:
    async with await stores.ingest(IngestRequest()) as ingest:
        with pytest.raises(InvalidInput, match="no file"):
            await ingest.commit()
        sink = await ingest.file("model.onnx")
        with pytest.raises(InvalidInput, match="still open"):
            await ingest.file("other")
        await sink.write(MODEL)
        await sink.close()
        for call in (sink.close, lambda: sink.write(b"x")):
            with pytest.raises(InvalidInput, match="The file is closed"):
                await call()
        with pytest.raises(InvalidInput, match="twice"):
            await ingest.file("model.onnx")
        await ingest.file("half")
        with pytest.raises(InvalidInput, match="still open"):
            await ingest.commit()


async def test_an_upload_that_is_left_is_not_there(stores: Stores, storage: MemoryStorage) -> None:
    async with await stores.ingest(IngestRequest()) as ingest:
        sink = await ingest.file("model.onnx")
        await sink.write(bytes(3 << 20))
    assert await keys_in(storage) == ["protoslice.json"]
    with suppress(KeyboardInterrupt):
        async with await stores.ingest(IngestRequest()) as ingest:
            sink = await ingest.file("model.onnx")
            await sink.write(bytes(3 << 20))
            raise KeyboardInterrupt
    assert await keys_in(storage) == ["protoslice.json"]


def test_an_upload_that_is_cancelled_leaves_nothing_open() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            async with await stores.ingest(IngestRequest()) as ingest:
                sink = await ingest.file("model.onnx")
                while True:
                    await sink.write(bytes(1 << 20))
                    begun.set()

        task = asyncio.create_task(endless())
        await begun.wait()
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await storage.collect_garbage(0) == 0
        assert await keys_in(storage) == ["protoslice.json"]

    in_files(work)


async def test_a_descriptor_set_that_was_uploaded_gives_types(stores: Stores) -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine", syntax="proto3")
    message = file.message_type.add(name="Thing")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="data", number=2, type=12, label=1)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    thing = b"\x0a\x04name" + b"\x12\x80\xea\x30" + bytes(800_000)
    request = IngestRequest(type="mine.Thing", min_chunk=1000)
    with pytest.raises(Unsupported, match=r"mine\.Thing"):
        await upload(stores, {"thing": thing}, request)
    info, new = await stores.schemas.put("mine", data)
    assert (info.name, info.size, info.messages, new) == ("mine", len(data), 1, True)
    created = await upload(stores, {"thing": thing}, request)
    await stores.schemas.delete("mine")
    store = await stores.view(created.store.id)
    assert await read(await documents.merge(store, "name", None, None)) == b"name"
    await assert_whole(stores, created.store)


T = TypeVar("T")

_WRITES: Final = {"put", "commit"}
_FOREVER: Final = 60
"""The seconds after which a write that the test waits for will never come."""


class Log(InterceptedDatabase):
    """A record of the transactions that write and a storage's durable writes, in their order."""

    def __init__(self, inner: Database, log: list[str]) -> None:
        super().__init__(inner)
        self._log = log

    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedDatabase.intercept`."""
        if name == "write":
            self._log.append("transaction")
        return await call()


class Rounds(InterceptedStorage):
    """Durable writes that end in rounds: the writes of a round end together once the expected number waits."""

    def __init__(self, inner: MemoryStorage, log: list[str]) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []
        self._log = log
        self._waiting = 0
        self._full = asyncio.Event()

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name not in _WRITES or not self.sizes:
            return await call()
        self._waiting += 1
        full = self._full
        if self._waiting == self.sizes[0]:
            self._waiting, self._full = 0, asyncio.Event()
            self._log.append(f"{self.sizes.pop(0)} at once")
            full.set()
        try:
            async with asyncio.timeout(_FOREVER):
                await full.wait()
        except TimeoutError:
            pytest.fail(f"after {self._log} a round waits with no more than {self._waiting}")
        return await call()


def rounds(size: int, sizes: list[int]) -> list[str]:
    """Return the durable writes and transactions of an upload, by a process that has reserved objects."""

    async def run() -> list[str]:
        log = list[str]()
        inner = MemoryStorage()
        storage = Rounds(inner, log)
        async with opened(storage, database=Log(catalogue_of(inner), log)) as stores:
            await upload(stores, onnx(LARGEST_HELD, seed=1))
            log.clear()
            storage.sizes += sizes
            await upload(stores, onnx(size), IngestRequest(tags=("a",)))
            assert not storage.sizes
            return [*log]

    return asyncio.run(run())


def test_the_smallest_upload_is_one_transaction() -> None:
    assert rounds(100, []) == ["transaction"]


def test_a_small_upload_is_one_write_and_one_transaction() -> None:
    assert rounds(LARGEST_HELD, [1]) == ["1 at once", "transaction"]


@records_apart()
def test_records_that_are_objects_are_written_side_by_side() -> None:
    assert rounds(100, [2, 3]) == ["2 at once", "3 at once", "transaction"], (
        "the file with its checksums, then index, plan and schema"
    )


class CountingReplacements(InterceptedStorage):
    """A storage that counts the writes of objects that exist already."""

    replaced = 0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name in _WRITES and key is not None:
            self.replaced += key.text in await keys_in(self._inner)
        return await call()


def test_no_object_is_ever_replaced() -> None:
    async def run() -> int:
        storage = CountingReplacements(MemoryStorage())
        async with opened(storage) as stores:
            storage.replaced = 0
            for seed in (1, 2, 1):
                await upload(stores, {"model.onnx": onnx(9000, seed=seed), "large": bytes(2 << 20)}, IngestRequest())
            return storage.replaced

    assert asyncio.run(run()) == 0

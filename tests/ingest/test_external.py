"""Objects that are registered in place: they are read seldom, and pinned to their state at registration."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.counted import counted_bucket
from tests.support.golden import CHUNKED, MODELS
from tests.support.stores import assert_whole, keys_in, onnx, opened, read, upload, visible

from protoslice.errors import (
    Conflict,
    CorruptModel,
    InvalidInput,
    LimitExceeded,
    NotFound,
    SourceDenied,
    StorageDenied,
    StorageUnavailable,
    Unsupported,
)
from protoslice.ingest import external
from protoslice.serving import StoreOptions, shared
from protoslice.storage import Call, FileStorage, MemoryStorage, MeteredStorage, ObjectKey, ObjectStat, Span, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents, tensors

MODEL = onnx(100, 70_000, 3_000_000, 10)


def registering(folder: Path, work: Callable[[Stores, Storage], Awaitable[None]]) -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage, StoreOptions(register_prefixes=(f"file://{folder}",))) as stores:
            await work(stores, storage)

    asyncio.run(run())


def put(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return f"file://{folder}/{name}"


def test_a_store_over_files_elsewhere(tmp_path: Path) -> None:
    uri = put(tmp_path, "model.onnx", MODEL)
    notes = put(tmp_path, "notes.txt", b"a text")

    async def work(stores: Stores, storage: Storage) -> None:
        request = IngestRequest(min_chunk=50_000, tags=("here",))
        created = await stores.register({"model.onnx": uri, "docs/notes": notes}, request)
        info = created.store
        assert (created.created, info.type, info.root, info.source) == (
            True,
            "onnx.ModelProto",
            "model.onnx",
            "register",
        )
        assert [(file.path, file.size, file.sha256) for file in info.files] == [
            ("model.onnx", len(MODEL), None),
            ("docs/notes", 6, None),
        ]
        assert info.tags == ("here",)
        views = await assert_whole(stores, info)
        assert views["merge"] == views["file model.onnx"] == MODEL
        assert views["file docs/notes"] == b"a text"
        assert not any("file-" in key for key in await keys_in(storage))
        before = await keys_in(storage)
        again = await stores.register({"docs/notes": notes, "model.onnx": uri}, request)
        assert (again.created, again.store.id) == (False, info.id)
        assert await keys_in(storage) == before
        uploaded = await upload(stores, {"model.onnx": MODEL, "docs/notes": b"a text"}, request)
        assert uploaded.store.id != info.id
        assert await assert_whole(stores, uploaded.store) == views

    registering(tmp_path, work)


def test_chunked_protos_in_place(tmp_path: Path) -> None:
    plain = put(tmp_path, "a.cpb", (CHUNKED / "graph_large_constants.max100000.uncompressed.cpb").read_bytes())
    packed = put(tmp_path, "b.cpb", (CHUNKED / "graph_large_constants.max70000.zstd.cpb").read_bytes())

    async def work(stores: Stores, _: Storage) -> None:
        info = (await stores.register({"a.cpb": plain}, IngestRequest())).store
        views = await assert_whole(stores, info)
        assert len(views["merge"]) > 300_000
        with pytest.raises(Unsupported, match="compressed"):
            await stores.register({"b.cpb": packed}, IngestRequest())

    registering(tmp_path, work)


def test_indexing_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []
    monkeypatch.setattr(
        shared, "open_source", lambda root, *_, **__: MeteredStorage(FileStorage(str(tmp_path)), calls.append)
    )
    uri = put(tmp_path, "model.onnx", onnx(*[2_000_000] * 10))

    async def work(stores: Stores, _: Storage) -> None:
        info = (await stores.register({"model.onnx": uri}, IngestRequest())).store
        reads = [call for call in calls if call.name.startswith("get_range")]
        assert sum(call.bytes_read for call in reads) < 1_500_000
        assert len(reads) < 60
        del calls[:]
        view = (await stores.view(info.id)).file("model.onnx")
        assert len(await read(view, 7_000_000, 7_000_100)) == 100
        assert sum(call.bytes_read for call in calls) == 100

    registering(tmp_path, work)


def test_an_object_is_looked_at_once_however_many_files_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []
    monkeypatch.setattr(
        shared, "open_source", lambda root, *_, **__: MeteredStorage(FileStorage(str(tmp_path)), calls.append)
    )
    model, notes = put(tmp_path, "model.onnx", onnx(100)), put(tmp_path, "notes", b"a text")
    files = {f"{n}": notes for n in range(50)} | {"model.onnx": model} | {f"more/{n}": notes for n in range(50)}

    async def work(stores: Stores, _: Storage) -> None:
        info = (await stores.register(files, IngestRequest(root="model.onnx"))).store
        assert [file.path for file in info.files] == list(files)
        assert sum(call.name == "stat" for call in calls) < 10

    registering(tmp_path, work)


def test_reads_of_the_root_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "REQUESTS", 2)
    uri = put(tmp_path, "model.onnx", onnx(*[2_000_000] * 10))

    async def work(stores: Stores, storage: Storage) -> None:
        before = await keys_in(storage)
        with pytest.raises(LimitExceeded, match="more than 2 reads"):
            await stores.register({"model.onnx": uri}, IngestRequest())
        assert await keys_in(storage) == before

    registering(tmp_path, work)


def test_objects_that_never_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FileStorage):
        async def stat(self, key: ObjectKey) -> ObjectStat:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(external, "SECONDS", 0.05)
    monkeypatch.setattr(shared, "open_source", lambda root, *_, **__: Silent(str(tmp_path)))
    uri = put(tmp_path, "model.onnx", MODEL)

    async def work(stores: Stores, storage: Storage) -> None:
        before = await keys_in(storage)
        with pytest.raises(StorageUnavailable, match=r"0\.05 seconds"):
            await stores.register({"model.onnx": uri}, IngestRequest())
        assert await keys_in(storage) == before

    registering(tmp_path, work)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "file://{folder}-beside/model.onnx",
        "file://{folder}/../model.onnx",
        "file://{folder}/%2e%2e/model.onnx",
        "file://{folder}",
        "s3://bucket/model.onnx",
        "http://127.0.0.1/model.onnx",
        "{folder}/model.onnx",
        "",
    ],
)
def test_what_may_not_be_registered(tmp_path: Path, uri: str) -> None:
    put(tmp_path, "model.onnx", MODEL)

    async def work(stores: Stores, storage: Storage) -> None:
        before = await keys_in(storage)
        with pytest.raises((StorageDenied, InvalidInput)):
            await stores.register({"model.onnx": uri.format(folder=tmp_path)}, IngestRequest())
        assert await keys_in(storage) == before

    registering(tmp_path, work)


async def test_nothing_may_be_registered_unless_somebody_says_so(tmp_path: Path) -> None:
    uri = put(tmp_path, "model.onnx", MODEL)
    async with opened(MemoryStorage()) as stores:
        with pytest.raises(StorageDenied):
            await stores.register({"model.onnx": uri}, IngestRequest())


def test_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    put(tmp_path, "model.onnx", MODEL)
    (inside / "link.onnx").symlink_to(tmp_path / "model.onnx")
    (inside / "folder").symlink_to(tmp_path)

    async def work(stores: Stores, _: Storage) -> None:
        for name in ("link.onnx", "folder/model.onnx"):
            with pytest.raises((NotFound, StorageDenied)):
                await stores.register({"model.onnx": f"file://{inside}/{name}"}, IngestRequest())

    registering(inside, work)


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    uri = put(tmp_path, "model.onnx", MODEL)
    text = put(tmp_path, "net.prototxt", (MODELS / "caffe_new/deploy.prototxt").read_bytes())
    cut = put(tmp_path, "cut.onnx", MODEL[:-1000])

    async def work(stores: Stores, _: Storage) -> None:
        for files, request, error in [
            ({}, IngestRequest(), InvalidInput),
            ({"../x": uri}, IngestRequest(), InvalidInput),
            ({"x": uri}, IngestRequest(min_chunk=0), InvalidInput),
            ({"x": uri}, IngestRequest(tags=("bad tag",)), InvalidInput),
            ({"x": uri}, IngestRequest(root="y"), NotFound),
            ({"x": uri}, IngestRequest(type="not.a.Type"), Unsupported),
            ({"x": uri + "2"}, IngestRequest(), NotFound),
            ({"net.prototxt": text}, IngestRequest(), Unsupported),
            ({"cut.onnx": cut}, IngestRequest(), CorruptModel),
        ]:
            with pytest.raises(error):
                await stores.register(files, request)
        assert await visible(stores) == {}

    registering(tmp_path, work)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"changed")


def replace(path: Path) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(MODEL)
    beside.rename(path)


def cut_short(path: Path) -> None:
    os.truncate(path, len(MODEL) - 1)


@pytest.mark.parametrize("change", [overwrite, replace, cut_short, Path.unlink])
@pytest.mark.parametrize("when", ["before it is opened", "while it is open", "while it is read"])
def test_a_source_that_has_changed_is_a_conflict_and_never_a_mixture(
    tmp_path: Path, change: Callable[[Path], None], when: str
) -> None:
    uri = put(tmp_path, "model.onnx", MODEL)
    path = tmp_path / "model.onnx"
    os.utime(path, ns=(1, 1))

    async def work(stores: Stores, storage: Storage) -> None:
        info = (await stores.register({"model.onnx": uri}, IngestRequest(min_chunk=50_000))).store
        if when == "before it is opened":
            change(path)
            with pytest.raises(Conflict, match="register the store again"):
                await stores.view(info.id)
            return
        store = await stores.view(info.id)
        views = [
            store.file("model.onnx"),
            await documents.merge(store, "", None, None),
            await documents.merge(store, "graph", None, None),
            await chunks.chunk(store, 2),
        ]
        readers = [view.pieces(0, view.size) for view in views]
        if when == "while it is read":
            assert [len(await anext(reader)) > 0 for reader in readers] == [True] * 4
            readers = [reader for reader, view in zip(readers, views, strict=True) if view.size > 1 << 20]
        change(path)
        for reader in readers:
            async with aclosing(reader):
                with pytest.raises(Conflict, match="register the store again"):
                    await anext(reader)
        with pytest.raises(Conflict):
            await read(await documents.merge(store, "graph.initializer[1]", None, None))

    registering(tmp_path, work)


@pytest.mark.parametrize("same", [True, False])
def test_sources_of_the_scheme_are_opened_with_its_options(same: bool) -> None:
    given = {"region": "here"}
    with counted_bucket() as bucket:
        bucket.fill({"a/model.onnx": MODEL})
        options = StoreOptions(
            register_prefixes=(f"{bucket.uri}/a",), register_options={bucket.scheme if same else "s3": given}
        )

        async def run() -> None:
            async with opened(MemoryStorage(), options) as stores:
                await stores.register({"model.onnx": f"{bucket.uri}/a/model.onnx"}, IngestRequest())

        asyncio.run(run())
    assert bucket.options == [given if same else {}]


class Waits(MemoryStorage):
    """A bucket in memory that counts how often a caller waits for it; parallel reads are one wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self._under_way: asyncio.Future[None] | None = None

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        if self._under_way is None:
            self.waits += 1
            self._under_way = asyncio.get_running_loop().create_future()
            for _ in range(20):  # parallel reads have been requested by then
                await asyncio.sleep(0)
            self._under_way.set_result(None)
            self._under_way = None
        else:
            await asyncio.shield(self._under_way)
        return await super().get_ranges(key, spans, if_etag=if_etag)


@pytest.mark.parametrize("sizes", [[70_000] * 200, [400_000] * 100, [100_000, 3000, 300_000] * 40], ids=len)
async def test_parts_of_like_sizes_are_read_side_by_side(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
    bucket = Waits()
    monkeypatch.setattr(shared, "open_source", lambda *_, **__: bucket)
    await bucket.put(ObjectKey("model.onnx"), onnx(*sizes))
    async with opened(MemoryStorage(), StoreOptions(register_prefixes=("s3://bucket",))) as stores:
        info = (await stores.register({"model.onnx": "s3://bucket/model.onnx"}, IngestRequest())).store
        assert bucket.waits < 40
        bucket.waits = 0
        await tensors.page(await stores.view(info.id), name=None, dtype=None, limit=1000, cursor=None)
        assert bucket.waits < 25


def test_a_source_that_refuses_is_told_from_the_storage_of_the_service() -> None:
    """The source refuses while it is registered, and later when it is read."""
    with counted_bucket() as bucket:
        bucket.fill({"a/model.onnx": MODEL})
        uri = f"{bucket.uri}/a/model.onnx"

        async def refuse(*_: object, **__: object) -> bytes:
            raise StorageDenied("cannot read 'a/model.onnx': access denied (AccessDenied)")

        async def run() -> None:
            async with opened(MemoryStorage(), StoreOptions(register_prefixes=(f"{bucket.uri}/a",))) as stores:
                store = (await stores.register({"model.onnx": uri}, IngestRequest())).store
                view = (await stores.view(store.id)).file("model.onnx")
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(bucket, "get_range", refuse)
                    patch.setattr(bucket, "stat", refuse)
                    with pytest.raises(SourceDenied, match=r"registered in place: .* \(AccessDenied\)"):
                        await read(view)
                    with pytest.raises(SourceDenied):
                        await stores.register({"again.onnx": uri}, IngestRequest())
                assert await read(view) == MODEL

        asyncio.run(run())

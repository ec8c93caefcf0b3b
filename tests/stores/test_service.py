"""The storage of stores: damaged, careless, or full.

The memory of stores is bounded, and released on closing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.s3 import RawBucket, emulator
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    in_files,
    in_memory,
    keys_in,
    keys_of,
    onnx,
    open_stores,
    opened,
    records_apart,
    some,
    upload,
    visible,
)
from tests.support.things import DESCRIPTORS

from protoslice.artifacts import ArtifactRepository, RepositoryName
from protoslice.catalog.manifest import Manifest
from protoslice.catalog.marker import check_storage
from protoslice.catalog.stores import StoreTable
from protoslice.database import upgrade
from protoslice.database.sqlite import SqliteDatabase
from protoslice.errors import IntegrityError, NotFound, StorageFull, StorageUnavailable, Unsupported
from protoslice.mlflow import MlflowArtifacts
from protoslice.serving import StoreOptions, shared
from protoslice.serving.finding import Manifests
from protoslice.serving.opened import open_root
from protoslice.storage import Buffer, FileStorage, MemoryStorage, ObjectContent, ObjectKey
from protoslice.storage.bucket import CloudStorage
from protoslice.stores import IngestRequest, Stores


async def test_a_damaged_manifest_harms_no_other_store_and_can_be_deleted(
    stores: Stores, storage: MemoryStorage
) -> None:
    one, two = await some(stores, 2)
    sql = "UPDATE stores SET manifest = :data WHERE digest = :one"
    await stores.database.write(lambda tx: tx.run(sql, data=b"{}", one=one))
    async with opened(storage) as others:
        with pytest.raises(IntegrityError):
            await others.get(one)
        with pytest.raises(IntegrityError):
            await others.view(one)
        assert set(await visible(others)) == {two}
        await others.delete(one)
        with pytest.raises(NotFound):
            await others.get(one)
        await asyncio.sleep(0.002)
        assert (await collect_garbage(storage, grace_seconds=0)).stores == 1
        assert (await upload(others, onnx(10, seed=0))).store.id == one
        assert set(await visible(others)) == {one, two}


@records_apart()
def test_a_store_whose_object_is_gone_is_damaged_not_missing() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, onnx(90_000))).store
        keys = await keys_of(stores, info.id)
        for name in ("index", "file-0.sums", "file-0"):
            await storage.delete(keys[name])
            async with opened(storage) as others:
                with pytest.raises(IntegrityError, match="missing"):
                    await assert_whole(others, info)

    in_memory(work)


class Careless(MemoryStorage):
    """A storage that reports success, and keeps the earlier content."""

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """See `Storage.put`."""
        if key in self._objects:
            return self._objects[key].stat.etag
        return await super().put(key, data)


async def test_a_storage_that_cannot_be_written_serves_and_takes_nothing_in() -> None:
    storage = Careless()
    await check_storage(storage, catalogue_of(storage), mark=True)
    async with opened(storage) as stores:
        assert await visible(stores) == {}
        for call in (stores.ingest, lambda request: stores.register({"a": "memory://a"}, request)):
            with pytest.raises(Unsupported, match="other bytes than were written last"):
                await call(IngestRequest())
        with pytest.raises(Unsupported, match="other bytes than were written last"):
            await stores.schemas.put("a", DESCRIPTORS)


def test_readiness() -> None:
    async def run(stores: Stores, _: FileStorage) -> None:
        await stores.shared.ready()

    async def full(stores: Stores, _: FileStorage) -> None:
        with pytest.raises(StorageFull, match="almost full"):
            await stores.shared.ready()

    in_files(run, StoreOptions(space_watermark_bytes=0))
    in_files(full, StoreOptions(space_watermark_bytes=1 << 60))


MANIFEST: Final = b"""{
    "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [],
    "config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
               "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
}"""


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for each in data:
        yield each


class Silent(MemoryStorage):
    """A storage that never answers a read while `silent`."""

    silent = False

    async def get(self, key: ObjectKey) -> ObjectContent:
        """See `Storage.get`."""
        if self.silent:
            await asyncio.Event().wait()
        return await super().get(key)


async def test_a_full_disk_of_the_database_takes_nothing_in_with_any_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = SqliteDatabase(tmp_path / "catalog.sqlite")
    await upgrade(database)
    async with MemoryStorage() as storage, opened(storage, StoreOptions(), database) as stores:
        info = (await upload(stores, onnx(10))).store
        before = set(await keys_in(storage))
        with monkeypatch.context() as patch:
            patch.setattr(SqliteDatabase, "free_bytes", lambda _: (128 << 20) - 1)
            with pytest.raises(StorageFull, match="The disk of the database is full: remove stores"):
                await upload(stores, onnx(20_000))
            assert set(await keys_in(storage)) == before
            await stores.delete(info.id)
        await upload(stores, onnx(20_000))
    await database.close()


def test_a_disk_that_is_nearly_full_takes_nothing_in_and_stores_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stores: Stores, _: FileStorage) -> None:
        info = (await upload(stores, onnx(10))).store

        async def free(_: FileStorage) -> int:
            return (128 << 20) - 1

        monkeypatch.setattr(FileStorage, "free_bytes", free)
        with pytest.raises(StorageFull, match="The disk is full: remove stores"):
            await upload(stores, onnx(20))
        with pytest.raises(StorageFull):
            await MlflowArtifacts(stores).put("run/small.txt", pieces(b"x"))
        with pytest.raises(StorageFull):
            await ArtifactRepository(stores, RepositoryName("ann/m")).put_manifest("1", MANIFEST, "")
        await stores.delete(info.id)
        assert not await visible(stores)

    in_files(work)


def test_a_bucket_that_is_gone_is_not_ready() -> None:
    async def work() -> None:
        bucket = RawBucket.make(options)
        async with CloudStorage.from_uri(bucket.uri, options) as storage, opened(storage) as stores:
            await stores.shared.ready()
            await bucket.drop()
            with pytest.raises(StorageUnavailable):
                await stores.shared.ready()

    with emulator() as options:
        asyncio.run(work())


def test_a_storage_that_does_not_answer_in_time_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with opened(storage := Silent()) as stores:
            await stores.shared.ready()
            storage.silent = True
            monkeypatch.setattr(shared, "READY_SECONDS", 0)
            with pytest.raises(StorageUnavailable, match="did not respond within 0 seconds"):
                await stores.shared.ready()

    assert shared.READY_SECONDS <= 2
    asyncio.run(run())


def open_files(below: Path) -> list[str]:
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sorted(name for name in (os.readlink(link) for link in links if link.is_symlink()) if str(below) in name)


@pytest.mark.parametrize("waiting", [True, False])
def test_closing_waits_for_a_store_that_is_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: bool
) -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    plainly = open_root

    async def slowly(*args: Any, **options: Any) -> Any:
        begun.set()
        await released.wait()
        return await plainly(*args, **options)

    async def work() -> list[str]:
        async with FileStorage(str(tmp_path)) as storage:
            stores = await open_stores(storage)
            info = (await upload(stores, onnx(90_000))).store
            held = open_files(tmp_path)
            monkeypatch.setattr("protoslice.serving.shared.open_root", slowly)
            view = asyncio.create_task(stores.view(info.id))
            await begun.wait()
            if not waiting:
                view.cancel()
            closing = asyncio.create_task(stores.close())
            await asyncio.sleep(0.05)
            assert not closing.done()
            released.set()
            await closing
            await asyncio.gather(view, return_exceptions=True)
            del view
            return [name for name in open_files(tmp_path) if name not in held]

    assert asyncio.run(work()) == []


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the rows of the decoded manifests."""
    rows, plainly = list[int](), Manifest.decode

    def decode(data: bytes, row: int = 0) -> Manifest:
        rows.append(row)
        return plainly(data, row)

    monkeypatch.setattr(Manifest, "decode", decode)
    return rows


async def test_the_manifests_used_last_are_kept_and_no_more_than_there_is_room_for(
    stores: Stores, decoded: list[int]
) -> None:
    ids = [(await upload(stores, onnx(100 + n))).store.id for n in range(6)]
    sizes = await stores.database.read(lambda tx: tx.all("SELECT max(length(manifest)) FROM stores"))
    three = 3 * (sizes[0][0] + 1500)  # in memory each takes some more
    table = StoreTable(stores.database, stores.quotas.usage)
    manifests = Manifests(table, stores.worker, cached_bytes=three)

    async def reads(*wanted: int) -> int:
        decoded.clear()
        for n in wanted:
            assert (await manifests.get(ids[n])).id == ids[n]
        return len(decoded)

    assert await reads(0, 1, 2, 0, 1, 2) == 3
    assert await reads(0) == 0, "it was used last now"
    assert await reads(3, 4) == 2
    assert await reads(0, 3, 4) == 0
    assert await reads(1, 2) == 2
    await stores.delete(ids[1])
    with pytest.raises(NotFound):
        await manifests.get(ids[1])
    assert await reads(2, 4) == 0


async def test_a_store_that_was_sent_again_has_another_manifest(stores: Stores, decoded: list[int]) -> None:
    info = (await upload(stores, onnx(100))).store
    manifests = Manifests(StoreTable(stores.database, stores.quotas.usage), stores.worker)
    decoded.clear()
    first = await manifests.get(info.id)
    assert await manifests.get(info.id) is first
    assert len(decoded) == 1
    await stores.delete(info.id)
    await upload(stores, onnx(100))
    again = await manifests.get(info.id)
    assert again.row != first.row
    assert decoded == [first.row, again.row]

"""Storage or catalogue fails at call 1, 2, 3 …: stores are whole or absent, and all garbage is collected.

As in SQLite's anomaly tests, the fault moves on until the work ends without meeting it. A full disk accepts nothing,
and can be emptied once another program has freed a little of it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED, MODELS
from tests.support.interrupted import FaultyDatabase, FaultyStorage
from tests.support.stores import (
    assert_tidy,
    assert_whole,
    collect_everything,
    collect_garbage,
    keys_in,
    onnx,
    opened,
    upload,
    visible,
)

from protoslice.database import upgrade
from protoslice.database.sqlite import SqliteDatabase
from protoslice.errors import NotFound, ProtosliceError, StorageFull
from protoslice.facts import Removed, Restored
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey
from protoslice.stores import Created, IngestRequest, Stores, collection
from protoslice.views import chunks

OLD = onnx(90_000, seed=1)
REQUEST = IngestRequest(min_chunk=50_000, tags=("new",))
UPLOADS = {
    "raw": {"model.onnx": onnx(100, 90_000, seed=2)},
    "several": {"model.onnx": onnx(90_000, seed=3), "a": b"text", "b": b""},
    "uncompressed cpb": {"x.cpb": (CHUNKED / "graph_large_constants.max100000.uncompressed.cpb").read_bytes()},
    "compressed cpb": {"x.cpb": (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()},
    "text": {"deploy.prototxt": (MODELS / "caffe_new/deploy.prototxt").read_bytes()},
    "unknown": {"odd": b"\x92\x4e\x03abc"},
    "duplicate": {"model.onnx": OLD},
}
HOW = pytest.mark.parametrize(
    "how", [{}, {"after": True}, {"stays_down": True}, {"after": True, "stays_down": True}], ids=str
)
Work = Callable[[Stores], Awaitable[object]]


async def prepared() -> tuple[MemoryStorage, str]:
    """Return a storage that holds one store with a tag, and the store's id."""
    storage = MemoryStorage()
    async with opened(storage) as stores:
        return storage, (await upload(stores, OLD, IngestRequest(tags=("old",)))).store.id


async def with_each_fault(
    work: Work,
    judge: Callable[[Stores, str, object], Awaitable[None]],
    how: dict[str, bool],
    prepare: Callable[[Stores], Awaitable[object]] | None = None,
) -> None:
    """Do `work` with call 1, 2, 3 … failing; after each, `judge` gets new stores, the old id and the result.

    Calls of the storage and transactions of the catalogue are counted together.
    """
    for fail_at in range(1, 200):
        inner, old = await prepared()
        faulty = FaultyStorage(inner, 1 << 40)
        async with opened(faulty, database=FaultyDatabase(catalogue_of(inner), faulty)) as stores:
            if prepare is not None:
                await prepare(stores)
            faulty.calls.clear()
            faulty._fail_at = fail_at
            faulty._after, faulty._stays_down = how.get("after", False), how.get("stays_down", False)
            try:
                result = await work(stores)
            except ProtosliceError as error:
                result = error
        async with opened(inner) as fresh:
            await judge(fresh, old, result)
            for info in (await visible(fresh)).values():
                await assert_whole(fresh, info)
        await collect_garbage(inner, grace_seconds=0)
        await collect_everything(inner)
        await assert_tidy(inner)
        async with opened(inner) as fresh:
            for info in (await visible(fresh)).values():
                await assert_whole(fresh, info)
        if not faulty.failed:
            assert not isinstance(result, ProtosliceError), result
            assert fail_at > 2
            return
    raise AssertionError("there is no end to the calls")


@HOW
@pytest.mark.parametrize("kind", ["raw", "duplicate"])
def test_uploads_one_way_and_another(kind: str, how: dict[str, bool]) -> None:
    fail_uploads(kind, how)


@pytest.mark.parametrize("how", [{}, {"after": True}], ids=str)
@pytest.mark.parametrize("kind", [kind for kind in UPLOADS if kind not in {"raw", "duplicate"}])
def test_uploads_of_all_kinds(kind: str, how: dict[str, bool]) -> None:
    fail_uploads(kind, how)


def fail_uploads(kind: str, how: dict[str, bool]) -> None:
    async def judge(fresh: Stores, old: str, result: object) -> None:
        seen = await visible(fresh)
        assert old in seen
        assert seen[old].tags[-1:] == ("old",)
        if isinstance(result, Created):
            assert result.store.id in seen
            assert (await fresh.get("new")).id == result.store.id
        assert len(seen) <= 2
        again = await upload(fresh, UPLOADS[kind], REQUEST)
        assert again.created == (again.store.id not in seen)

    asyncio.run(with_each_fault(lambda stores: upload(stores, UPLOADS[kind], REQUEST), judge, how))


@HOW
def test_deletion(how: dict[str, bool]) -> None:
    async def remove(stores: Stores) -> Removed:
        return await stores.delete((await stores.tags.get("old")).store)

    async def judge(fresh: Stores, old: str, result: object) -> None:
        seen = await visible(fresh)
        if isinstance(result, Removed):
            assert old not in seen
            with pytest.raises(NotFound):
                await fresh.tags.get("old")
        if old not in seen:
            with pytest.raises(NotFound):
                await fresh.get("old")
            assert (await upload(fresh, OLD)).created

    asyncio.run(with_each_fault(remove, judge, how))


@HOW
def test_tagging(how: dict[str, bool]) -> None:
    async def work(stores: Stores) -> bool:
        store = await stores.get("old")
        tag = await stores.tags.get("old")
        await stores.put_tag("new", store.id, if_none_match=True)
        await stores.put_tag("old", store.id, if_match=tag.etag)
        await stores.tags.remove("new")
        return True

    async def judge(fresh: Stores, old: str, result: object) -> None:
        names = {tag.name: tag.store for tag in (await fresh.tags.page(1000))[0]}
        assert names in ({"old": old}, {"old": old, "new": old})
        if result is True:
            assert "new" not in names

    asyncio.run(with_each_fault(work, judge, how))


@HOW
def test_restoring(how: dict[str, bool]) -> None:
    async def remove(stores: Stores) -> Removed:
        return await stores.delete((await stores.tags.get("old")).store)

    async def restore(stores: Stores) -> Restored:
        (row,) = await stores.database.read(lambda tx: tx.all("SELECT digest FROM stores WHERE deleted IS NOT NULL"))
        restored = await stores.restore(row[0])
        await stores.tags.get("old")
        return restored

    async def judge(fresh: Stores, old: str, result: object) -> None:
        seen = await visible(fresh)
        if isinstance(result, Restored):
            assert seen[old].tags == ("old",)
        if old not in seen:
            with pytest.raises(NotFound):
                await fresh.tags.get("old")
            assert (await fresh.restore(old)).store.tags == ("old",)

    asyncio.run(with_each_fault(restore, judge, how, remove))


@HOW
def test_collection(how: dict[str, bool]) -> None:
    async def with_garbage(stores: Stores) -> None:
        await stores.delete((await upload(stores, onnx(90_000, seed=5))).store.id)
        async with await stores.ingest(IngestRequest()) as ingest:
            sink = await ingest.file("model.onnx")
            await sink.write(bytes(2 << 20))

    async def collect(stores: Stores) -> bool:
        await asyncio.sleep(0.001)  # a store that was removed in this microsecond would stay
        await collection.collect_garbage(stores.storage, stores.database, grace_seconds=0, delay_seconds=0)
        return True

    async def judge(fresh: Stores, old: str, result: object) -> None:
        assert set(await visible(fresh)) == {old}
        assert (await fresh.get("old")).id == old

    asyncio.run(with_each_fault(collect, judge, how, with_garbage))


@HOW
def test_reading(how: dict[str, bool]) -> None:
    async def work(stores: Stores) -> bool:
        store = await stores.view("old")
        await chunks.chunks(store, limit=10, cursor=None)
        await assert_whole(stores, store.info)
        return True

    async def judge(fresh: Stores, old: str, result: object) -> None:
        assert set(await visible(fresh)) == {old}

    asyncio.run(with_each_fault(work, judge, how))


@HOW
def test_opening(how: dict[str, bool]) -> None:
    async def run() -> None:
        for fail_at in range(1, 50):
            inner = MemoryStorage()
            faulty = FaultyStorage(inner, fail_at, **how)
            with suppress(ProtosliceError):
                async with opened(faulty, database=FaultyDatabase(catalogue_of(inner), faulty)) as stores:
                    await upload(stores, OLD)
            async with opened(inner) as fresh:
                assert (await upload(fresh, OLD)).store.id in await visible(fresh)
            await collect_everything(inner)
            for key in await keys_in(inner, "probe"):  # a probe that failed may leave its object
                await inner.delete(ObjectKey(key))
            await assert_tidy(inner)
            if not faulty.failed:
                return
        raise AssertionError("there is no end to the calls")

    asyncio.run(run())


MIB = 1 << 20
FREED = 2 * MIB
"""The bytes that the operator frees by other means."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few mebibytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("a separate disk needs the permission to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> None:
    """Leave not a byte on a disk, as another program may do."""
    with open(disk / "filler", "ab", buffering=0) as file:
        for size in (MIB, 1 << 10, 1):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    assert os.statvfs(disk).f_bavail == 0


def free(disk: Path) -> None:
    """Free a little of a full disk."""
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - FREED)


@asynccontextmanager
async def service(disk: Path) -> AsyncIterator[Stores]:
    """Open stores on a disk together with their catalogue, as on one machine."""
    database = SqliteDatabase(disk / "catalog.sqlite")
    try:
        await upgrade(database)
        options = StoreOptions(space_watermark_bytes=0)  # the disk is smaller than what a service keeps free
        async with FileStorage(str(disk)) as storage, opened(storage, options, database) as stores:
            yield stores
    finally:
        await database.close()


async def filled(stores: Stores, disk: Path) -> list[str]:
    """Fill the disk with three stores, and return their ids."""
    ids = []
    for seed in range(3):
        made = await upload(stores, onnx(2 * MIB, seed=seed), IngestRequest(tags=(f"t{seed}",)))
        ids.append(made.store.id)
    fill(disk)
    return ids


async def empty(stores: Stores, disk: Path, ids: list[str]) -> None:
    """Remove two of three stores and collect them, until there is space for another one."""
    with pytest.raises(StorageFull):
        await upload(stores, onnx(3 * MIB, seed=7))
    free(disk)
    await stores.tags.remove("t2")
    assert (await stores.delete(ids[0])).tags == ("t0",)
    await stores.restore(ids[0])
    await stores.delete(ids[0])
    await stores.delete(ids[1])
    await asyncio.sleep(0.01)
    report = await collection.collect_garbage(stores.storage, stores.database, grace_seconds=0, delay_seconds=0)
    assert report.stores == 2
    assert report.deleted >= 2
    gc.collect()  # opened stores refer to themselves, so their files are closed by the collector of Python
    assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > 3 * MIB
    made = await upload(stores, onnx(3 * MIB, seed=7))
    found = await visible(stores)
    assert set(found) == {ids[2], made.store.id}
    assert found[ids[2]].tags == ()
    for info in found.values():
        await assert_whole(stores, info)
    with pytest.raises(NotFound):
        await stores.restore(ids[0])


async def test_a_full_disk_is_emptied(disk: Path) -> None:
    async with service(disk) as stores:
        await empty(stores, disk, await filled(stores, disk))


async def test_a_full_disk_of_the_database_takes_nothing_in(disk: Path) -> None:
    """A bucket has no limit, but each store adds rows."""
    database = SqliteDatabase(disk / "catalog.sqlite")
    await upgrade(database)
    options = StoreOptions(space_watermark_bytes=4 * MIB)
    async with MemoryStorage() as storage, opened(storage, options, database) as stores:
        kept = (await upload(stores, onnx(20_000))).store
        fill(disk)
        free(disk)  # half of the bytes reserved for removing stores
        before = set(await keys_in(storage))
        with pytest.raises(StorageFull, match="The disk of the database is full: remove stores"):
            await upload(stores, onnx(20_000, seed=1))
        assert set(await keys_in(storage)) == before
        assert set(await visible(stores)) == {kept.id}
        await stores.delete(kept.id)
        (disk / "filler").unlink()
        await upload(stores, onnx(20_000, seed=1))
    await database.close()


async def test_a_full_disk_is_emptied_after_a_restart(disk: Path) -> None:
    async with service(disk) as stores:
        ids = await filled(stores, disk)
    free(disk)  # SQLite needs some of it to open the database
    async with service(disk) as stores:
        assert set(await visible(stores)) == {*ids}
        for info in (await visible(stores)).values():
            await assert_whole(stores, info)
        fill(disk)
        await empty(stores, disk, ids)

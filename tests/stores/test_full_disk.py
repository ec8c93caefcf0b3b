"""A full disk takes nothing in, and can be emptied once another program has freed a little of it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.stores import assert_whole, keys_in, onnx, opened, upload, visible

from protoslice.database import upgrade
from protoslice.database.sqlite import SqliteDatabase
from protoslice.errors import NotFound, StorageFull
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.collection import collect_garbage

MIB = 1 << 20
FREED = 2 * MIB
"""What the operator frees by other means."""


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
    """Stores on a disk together with their catalogue, as on one machine."""
    database = SqliteDatabase(disk / "catalog.sqlite")
    try:
        await upgrade(database)
        options = StoreOptions(space_watermark_bytes=0)  # the disk is smaller than what a service keeps free
        async with FileStorage(str(disk)) as storage, opened(storage, options, database) as stores:
            yield stores
    finally:
        await database.close()


async def filled(stores: Stores, disk: Path) -> list[str]:
    """Ids of three stores on a disk that is full then."""
    ids = []
    for seed in range(3):
        made = await upload(stores, onnx(2 * MIB, seed=seed), IngestRequest(tags=(f"t{seed}",)))
        ids.append(made.store.id)
    fill(disk)
    return ids


async def empty(stores: Stores, disk: Path, ids: list[str]) -> None:
    """Remove two of three stores and collect them, until there is room for another one."""
    with pytest.raises(StorageFull):
        await upload(stores, onnx(3 * MIB, seed=7))
    free(disk)
    await stores.tags.remove("t2")
    assert (await stores.delete(ids[0])).tags == ("t0",)
    await stores.restore(ids[0])
    await stores.delete(ids[0])
    await stores.delete(ids[1])
    await asyncio.sleep(0.01)
    report = await collect_garbage(stores.storage, stores.database, grace_seconds=0, delay_seconds=0)
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
        free(disk)  # half of what is kept free to remove stores
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

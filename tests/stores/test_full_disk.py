"""A full disk can be emptied: stores and tags are removed, garbage is collected, and a restart serves the stores."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.stores import assert_whole, onnx, opened, upload, visible

from protoslice.catalog import sqlite, upgrade
from protoslice.catalog.sqlite import SqliteDatabase
from protoslice.errors import NotFound, StorageFull
from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, StoreOptions, Stores
from protoslice.stores.collection import collect_garbage

MIB = 1 << 20
BALLAST = 2 * MIB


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of a few mebibytes."""
    monkeypatch.setattr(sqlite, "_BALLAST_BYTES", BALLAST)
    monkeypatch.setattr(sqlite, "_BALLAST_ROOM", 2)
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
    """Leave not a byte on a disk."""
    with open(disk / "filler", "ab", buffering=0) as file:
        for size in (MIB, 1 << 10, 1):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    assert os.statvfs(disk).f_bavail == 0


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
    """Ids of three stores on a disk that is full then, but for its ballast."""
    database = stores.database
    assert isinstance(database, SqliteDatabase)
    await database.make_ballast()
    assert (disk / "catalog.sqlite.ballast").stat().st_size == BALLAST
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


def test_a_full_disk_is_emptied(disk: Path) -> None:
    async def run() -> None:
        async with service(disk) as stores:
            await empty(stores, disk, await filled(stores, disk))
            assert not (disk / "catalog.sqlite.ballast").exists(), "it was what made room"

    asyncio.run(run())


def test_a_full_disk_is_emptied_after_a_restart(disk: Path) -> None:
    async def run() -> None:
        async with service(disk) as stores:
            ids = await filled(stores, disk)
        (disk / "filler").unlink()  # closing used the ballast up; a process that is killed leaves it
        sqlite.Ballast(disk / "catalog.sqlite").make()
        fill(disk)
        async with service(disk) as stores:
            assert set(await visible(stores)) == {*ids}
            for info in (await visible(stores)).values():
                await assert_whole(stores, info)
            await empty(stores, disk, ids)

    asyncio.run(run())

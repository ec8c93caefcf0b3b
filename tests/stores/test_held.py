"""Memory that stores hold is bounded, and given back on closing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import onnx, open_stores, upload

from protoslice.catalog.manifest import Manifest
from protoslice.catalog.stores import StoreTable
from protoslice.errors import NotFound
from protoslice.serving.finding import Manifests
from protoslice.serving.opened import open_root
from protoslice.storage import FileStorage
from protoslice.stores import Stores


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
    """Rows of the manifests that were decoded."""
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

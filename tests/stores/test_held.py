"""Memory that stores hold is bounded, and given back on closing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import in_memory, onnx, open_stores, upload

from protoslice.storage import FileStorage, MemoryStorage
from protoslice.storage.wrappers.metered import Call, MeteredStorage
from protoslice.stores import Stores
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.layout import keys
from protoslice.stores.reading.root import open_root


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
            monkeypatch.setattr("protoslice.stores.open_stores.open_root", slowly)
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


def test_the_manifests_used_last_are_kept_and_no_more_than_there_is_room_for() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        ids = [(await upload(stores, onnx(100 + n))).store.id for n in range(6)]
        size = max([(await storage.stat(keys.store(store))).size for store in ids])
        three = 3 * (size + 1500)  # in memory each takes some more
        read: list[Call] = []
        metered = MeteredStorage(storage, read.append)
        manifests = Manifests(metered, Claims(metered), stores.worker, stores._is_sound, cached_bytes=three)

        async def reads(*wanted: int) -> int:
            read.clear()
            for n in wanted:
                assert (await manifests.get(ids[n])).id == ids[n]
            return sum(call.bytes_read > 0 for call in read)

        assert await reads(0, 1, 2, 0, 1, 2) == 3
        assert await reads(0) == 0, "it was used last now"
        assert await reads(3, 4) == 2
        assert await reads(0, 3, 4) == 0
        assert await reads(1, 2) == 2
        await manifests.remove(ids[1], (), lambda: asyncio.sleep(0))
        assert await reads(2, 4) == 0

    in_memory(work)

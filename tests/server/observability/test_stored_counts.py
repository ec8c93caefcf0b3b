"""Counts of what the storage holds, as /metrics tells them: kept ones, at no call of the storage."""

from __future__ import annotations

import asyncio

from tests.support.asgi import ask
from tests.support.seeded import Counting

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.storage import MemoryStorage, Storage, register, unregister
from protoslice.stores.collection.tally import StorageTally, keep_tally


def told_by(storage: Counting, *, tally: StorageTally | None) -> list[str]:
    """Lines of /metrics of a service that is started beside a tally and scraped twice."""

    def factory(uri: str, options: object) -> Storage:
        return storage

    async def run() -> list[str]:
        if tally is not None:
            await keep_tally(storage, tally)
        app = create_app(Settings(storage="counting://", auth="open"))
        await app.services.open()
        try:
            async with asyncio.timeout(10):
                while not storage.calls["get", "tally"]:
                    await asyncio.sleep(0)
            await ask(app, "GET", "/metrics")
            before = storage.calls.copy()
            text = (await ask(app, "GET", "/metrics")).text
            assert storage.calls == before, "a scrape asks the storage for nothing"
        finally:
            await app.services.close()
        return text.splitlines()

    register("counting", factory)
    try:
        return asyncio.run(run())
    finally:
        unregister("counting")


def test_metrics_tell_what_was_kept() -> None:
    lines = told_by(Counting(MemoryStorage()), tally=StorageTally(7, 8, 9000))
    assert {"protoslice_stores 7.0", "protoslice_tags 8.0"} <= set(lines)
    assert "protoslice_stored_bytes 9000.0" in lines
    assert not [line for line in lines if line.startswith("protoslice_logical_bytes ")], "nobody has counted them"


def test_metrics_of_a_storage_that_was_never_counted_have_no_samples() -> None:
    lines = told_by(Counting(MemoryStorage()), tally=None)
    assert "# TYPE protoslice_stores gauge" in lines
    assert not [line for line in lines if line.startswith("protoslice_stores ")]

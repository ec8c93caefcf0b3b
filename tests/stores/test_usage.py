"""Usage of a storage: bytes that a collection would free are told before it."""

from __future__ import annotations

import asyncio
import time

from tests.support.stores import collect_garbage, onnx, opened, upload, usage_of

from protoslice.storage import MemoryStorage


def _in_two_days() -> float:
    return time.time() + 2 * 86400


def test_reclaimable_bytes_are_those_that_a_collection_frees() -> None:
    async def work() -> None:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            await upload(stores, onnx(90_000))
            gone = (await upload(stores, onnx(70_000, seed=1))).store
            assert (await usage_of(storage, clock=_in_two_days)).reclaimable_bytes == 0
            await stores.delete(gone.id)
            assert (await usage_of(storage)).reclaimable_bytes == 0, "the grace has not passed"
            before = await usage_of(storage, clock=_in_two_days)
            assert before.reclaimable_bytes >= gone.size
            freed = await collect_garbage(storage, clock=_in_two_days)
            after = await usage_of(storage, clock=_in_two_days)
            assert before.reclaimable_bytes == freed.bytes
            assert (after.reclaimable_bytes, after.stores) == (0, 1)

    asyncio.run(work())

"""Tally of a storage: what a collection counts on its way, and what is kept of it."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.support.stores import collect_a_day_later, onnx, opened, some, upload, usage_of

from protoslice.storage import MemoryStorage
from protoslice.stores.collection.tally import KeptTally, StorageTally, keep_logical_bytes, keep_tally, last_tally
from protoslice.stores.envelope import seal
from protoslice.stores.layout import keys
from protoslice.stores.spaces import Spaces


def test_a_collection_counts_what_is_left_in_all_spaces() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            spaces = Spaces(storage, stores)
            await spaces.create("other")
            other = await spaces.get("other")
            large = (await upload(stores, onnx(90_000))).store
            gone = (await upload(stores, onnx(50_000))).store
            (kept,) = await some(other, 1)
            await other.put_tag("one", kept)
            await other.put_tag("two", kept)
            await stores.delete(gone.id)
            await collect_a_day_later(storage)
            report = await spaces.collect_garbage()
            assert report.there == StorageTally(2, 2, large.size)
            found = await last_tally(storage)
            assert (found.stores, found.tags, found.stored_bytes) == (2, 2, large.size)
            assert found.at is not None
            assert found.logical_bytes is None, "nobody has read the manifests"
            listed = (await usage_of(storage)).stored_bytes
            assert 0 < listed - large.size < 500, "claims and notes beside the objects"

    asyncio.run(run())


def test_bytes_that_a_collection_removes_are_not_counted() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            gone = (await upload(stores, onnx(50_000))).store
            await stores.delete(gone.id)
            report = await Spaces(storage, stores).collect_garbage(grace_seconds=-1)
            assert report.bytes >= gone.size
            assert report.there == StorageTally(0, 0, 0)

    asyncio.run(run())


def test_a_dry_run_keeps_nothing() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            await some(stores, 1)
            assert (await Spaces(storage, stores).collect_garbage(dry_run=True)).there is None
            assert await last_tally(storage) == KeptTally()

    asyncio.run(run())


def test_each_count_stays_until_it_is_counted_anew() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        await keep_logical_bytes(storage, 1 << 60)
        await keep_tally(storage, StorageTally(1, 2, 3))
        found = await last_tally(storage)
        assert (found.stores, found.tags, found.stored_bytes, found.logical_bytes) == (1, 2, 3, 1 << 60)
        await keep_logical_bytes(storage, 5)
        assert (await last_tally(storage)).stores == 1

    asyncio.run(run())


@pytest.mark.parametrize("data", [b"", b"{}", seal(b"[]"), seal(json.dumps({"more": 1}).encode()), seal(b"{")])
def test_a_tally_that_does_not_parse_is_none_and_is_made_anew(data: bytes) -> None:
    async def run() -> None:
        storage = MemoryStorage()
        await storage.put(keys.TALLY, data)
        assert await last_tally(storage) == KeptTally()
        await keep_tally(storage, StorageTally(1, 2, 3))
        assert (await last_tally(storage)).stores == 1

    asyncio.run(run())

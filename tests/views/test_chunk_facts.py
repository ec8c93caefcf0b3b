"""Digests and hashes of chunks: long work that stops with its callers, and goes on where it stopped."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest
from tests.support.stores import derived_in, onnx, opened, read, upload

from protoslice.serving import OpenStore
from protoslice.storage import MemoryStorage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import IngestRequest
from protoslice.views import chunks
from protoslice.views import chunks as module

BLOCK = 64 << 10
MODEL = onnx(*[3 * BLOCK] * 40)
REQUEST = IngestRequest(min_chunk=50_000)


class Reads:
    """Counts the bytes that were read of a store's objects, and tells its waiters."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, call: Call) -> None:
        if call.name.startswith("get_range"):
            self.bytes += call.bytes_read

    async def beyond(self, count: int) -> None:
        while self.bytes <= count:
            await asyncio.sleep(0)

    async def quiet(self) -> int:
        """Number of bytes once no more are read."""
        before = -1
        while before != self.bytes:
            before = self.bytes
            await asyncio.sleep(0.1)
        return before


def on_store(work: Callable[[OpenStore, Reads], Awaitable[None]]) -> None:
    async def run() -> None:
        reads = Reads()
        async with opened(MeteredStorage(MemoryStorage(), reads)) as stores:
            store = await stores.view((await upload(stores, MODEL, REQUEST)).store.id)
            reads.bytes = 0
            await work(store, reads)

    asyncio.run(run())


def test_hashing_stops_with_its_caller_and_goes_on_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 2 * BLOCK)

    async def work(store: OpenStore, reads: Reads) -> None:
        task = asyncio.create_task(chunks.cpb(store))
        await reads.beyond(len(MODEL) // 4)
        task.cancel()
        assert await reads.quiet() < len(MODEL) // 2
        whole = await read(await chunks.cpb(store))
        async with opened(MemoryStorage()) as others:
            other = await others.view((await upload(others, MODEL, REQUEST)).store.id)
            assert whole == await read(await chunks.cpb(other))

    on_store(work)


def test_what_was_hashed_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 2 * BLOCK)
    all_bytes: list[int] = []

    async def at_once(store: OpenStore, reads: Reads) -> None:
        await chunks.cpb(store)
        all_bytes.append(reads.bytes)

    async def work(store: OpenStore, reads: Reads) -> None:
        task = asyncio.create_task(chunks.cpb(store))
        await reads.beyond(all_bytes[0] // 2)
        task.cancel()
        await reads.quiet()
        reads.bytes = 0
        await chunks.cpb(store)
        assert reads.bytes < 0.6 * all_bytes[0]

    on_store(at_once)
    on_store(work)


def test_one_who_leaves_takes_nothing_from_the_other() -> None:
    async def work(store: OpenStore, reads: Reads) -> None:
        leaving, staying = (asyncio.create_task(chunks.cpb(store)) for _ in range(2))
        await reads.beyond(0)
        leaving.cancel()
        assert (await staying).size > len(MODEL)

    on_store(work)


def test_two_who_ask_for_a_digest_read_the_chunk_once() -> None:
    async def work(store: OpenStore, reads: Reads) -> None:
        chunk = next(n for n in range(100) if chunks.own_chunks(store).one(n).size >= BLOCK)
        first, second = await asyncio.gather(*(chunks.chunks(store, limit=1, cursor=str(chunk)) for _ in range(2)))
        size = first.items[0].size
        assert first == second
        assert reads.bytes <= size + 2 * BLOCK
        assert first.items[0].sha256 == hashlib.sha256(await read(chunks.own_chunks(store).one(chunk))).hexdigest()

    on_store(work)


async def test_a_page_writes_the_digests_that_it_made_and_not_those_of_all_chunks() -> None:
    many, storage = onnx(*[64] * 1600), MemoryStorage()
    cursors = [str(first) for first in range(0, 1600, 100)]
    async with opened(storage) as stores:
        store = await stores.view((await upload(stores, many, IngestRequest(min_chunk=1))).store.id)
        assert len((await chunks.planned(store)).plan) > 1600
        pages = [await chunks.chunks(store, limit=100, cursor=cursor) for cursor in cursors[:-1]]
        before = await derived_in(storage)
        pages.append(await chunks.chunks(store, limit=100, cursor=cursors[-1]))
        after = await derived_in(storage)
        wrote = sum(len(data) for name, data in after.items() if data != before.get(name))
        assert 100 * 32 <= wrote <= 34_000  # at most two groups of 512 digests
    async with opened(storage) as stores:
        again = await stores.view(store.info.id)
        assert [await chunks.chunks(again, limit=100, cursor=cursor) for cursor in cursors] == pages
    assert await derived_in(storage) == after

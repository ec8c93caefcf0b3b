"""Content whose digest is told: not written again where its store is there to stay."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption, at_every_call
from tests.support.seeded import Counting
from tests.support.stores import (
    assert_whole,
    collect_a_day_later,
    collect_garbage,
    keys_in,
    objects_in,
    onnx,
    opened,
    upload,
)

from protoslice.catalog.objects import Collected
from protoslice.errors import ChecksumMismatch
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.stores import Created, IngestRequest, Stores

MODEL = onnx(3000)
LARGE = onnx(2 << 20, seed=1)
"""Model that comes in several batches, and so would be written as it comes."""


async def told(stores: Stores, data: bytes | dict[str, bytes], request: IngestRequest | None = None) -> Created:
    """A store of one file whose digest is told."""
    (content,) = data.values() if isinstance(data, dict) else (data,)
    return await upload(stores, data, request, expected_sha256=hashlib.sha256(content).digest())


async def test_nothing_is_written_of_what_is_there(stores: Stores, storage: Storage) -> None:
    first = await upload(stores, MODEL)
    before = await keys_in(storage)
    again = await told(stores, MODEL)
    assert (again.store, again.created) == (first.store, False)
    assert await keys_in(storage) == before


@pytest.mark.parametrize(
    ("files", "request_"),
    [
        ({"model.onnx": MODEL}, IngestRequest()),
        ({"model.onnx": MODEL}, IngestRequest(min_chunk=64, max_chunk=900)),
        ({"model.onnx": MODEL}, IngestRequest(rules=("graph.initializer: every 1",))),
        ({"empty": b""}, IngestRequest()),
        ({"notes.txt": b"no proto"}, IngestRequest()),
        ({"unknown": MODEL}, IngestRequest(type="unknown")),
        ({"x.cpb": (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()}, IngestRequest()),
    ],
)
async def test_the_store_is_the_one_that_is_made_without_a_digest(
    stores: Stores, files: dict[str, bytes], request_: IngestRequest
) -> None:
    first = await told(stores, files, request_)
    assert first.created
    await assert_whole(stores, first.store)
    made = await upload(stores, files, request_)
    assert (made.store, made.created) == (first.store, False)
    again = await told(stores, files, request_)
    assert (again.store, again.created) == (first.store, False)


async def test_a_large_file_that_is_there_is_read_and_not_written(stores: Stores, storage: Storage) -> None:
    first = await told(stores, LARGE)
    before = await keys_in(storage)
    again = await told(stores, LARGE)
    assert (again.store, again.created) == (first.store, False)
    assert await keys_in(storage) == before


async def test_another_store_of_a_large_file_shares_its_object(stores: Stores, storage: Storage) -> None:
    first = await told(stores, LARGE)
    objects = await objects_in(storage)
    other = await told(stores, {"other.onnx": LARGE}, IngestRequest(max_chunk=1 << 20))
    assert other.created
    assert other.store.id != first.store.id
    assert await objects_in(storage) == objects
    await stores.delete(first.store.id)
    await collect_a_day_later(storage)
    await assert_whole(stores, other.store)


async def test_the_digest_of_another_large_file_gives_nobody_its_bytes(stores: Stores, storage: Storage) -> None:
    await told(stores, LARGE)
    before = await keys_in(storage)
    with pytest.raises(ChecksumMismatch):
        await upload(stores, onnx(2 << 20, seed=2), expected_sha256=hashlib.sha256(LARGE).digest())
    with pytest.raises(ChecksumMismatch):
        await upload(stores, LARGE[:-1], expected_sha256=hashlib.sha256(LARGE).digest())
    assert await keys_in(storage) == before


async def test_a_large_file_of_a_removed_store_is_written(stores: Stores, storage: Storage) -> None:
    first = (await told(stores, LARGE)).store
    lost = (await stores.view(first.id)).manifest.object_ids
    await stores.delete(first.id)
    made = await told(stores, {"other.onnx": LARGE})
    async with opened(storage) as fresh:
        assert not lost & (await fresh.view(made.store.id)).manifest.object_ids


def test_a_large_file_whose_store_goes_while_it_is_sent_again_is_written_or_refused() -> None:
    """A client that is refused sends it again, as for any `Conflict`."""
    outcomes = set[str]()

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as theirs:
            first = (await told(theirs, LARGE)).store

            async def remove() -> None:
                await theirs.delete(first.id)
                await asyncio.sleep(0.001)
                await collect_garbage(storage, grace_seconds=0)

            interruption = Interruption(remove)
            database = InterruptedDatabase(catalogue_of(storage), interruption)
            async with opened(InterruptedStorage(storage, interruption), database=database) as ours:
                interruption.arm(number)
                try:
                    made = (await told(ours, {"other.onnx": LARGE})).store
                    outcomes.add("stored")
                except Collected:
                    outcomes.add("refused")
                    made = (await told(ours, {"other.onnx": LARGE})).store
            async with opened(storage) as fresh:
                await assert_whole(fresh, made)
        return interruption.reached

    asyncio.run(at_every_call(at, 5))
    assert outcomes == {"stored", "refused"}


@pytest.mark.parametrize("left", [None, b"half of it"])
async def test_a_large_file_whose_object_is_lost_is_written(
    stores: Stores, storage: Storage, left: bytes | None
) -> None:
    await told(stores, LARGE)
    (lost,) = await objects_in(storage)
    if left is None:
        await storage.delete(ObjectKey(lost))
    else:
        await storage.put(ObjectKey(lost), left)
    made = await told(stores, LARGE)
    async with opened(storage) as fresh:
        await assert_whole(fresh, made.store)


async def test_tags_are_set_and_others_told(stores: Stores) -> None:
    first = (await upload(stores, MODEL, IngestRequest(tags=("a",)))).store
    again = await told(stores, MODEL, IngestRequest(tags=("b",)))
    assert again.store.tags == ("a", "b")
    assert (await stores.tags.get("b")).store == first.id


async def test_a_store_that_is_removed_is_made_anew(stores: Stores) -> None:
    first = (await upload(stores, MODEL)).store
    await stores.delete(first.id)
    again = await told(stores, MODEL)
    assert again.created
    await assert_whole(stores, again.store)


async def test_a_report_is_made_all_the_same(stores: Stores) -> None:
    await upload(stores, MODEL)
    assert (await told(stores, MODEL, IngestRequest(report=True))).report is not None


async def test_a_wrong_digest_writes_nothing() -> None:
    counting = Counting(MemoryStorage())
    async with opened(counting) as stores:
        counting.calls.clear()
        with pytest.raises(ChecksumMismatch):
            await upload(stores, MODEL, expected_sha256=bytes(32))
    assert counting.calls == {}

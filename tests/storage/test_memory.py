"""`memory://` keeps the contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.backends import odd_etag

from protoslice.storage import Call, MemoryStorage, MeteredStorage, ObjectKey, Storage
from protoslice.testing import Raw, RawThroughStorage, StorageConformance


class TestMemory(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        storage = MemoryStorage()
        yield storage, RawThroughStorage(storage)


class TestMemoryWithOddEntityTags(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        storage = MemoryStorage(odd_etag)
        yield storage, RawThroughStorage(storage)


async def test_iterating_goes_on_from_page_to_page() -> None:
    storage = MemoryStorage()
    names = ["a/1", "a/2", "a/3", "b/1"]
    for name in names:
        await storage.put(ObjectKey(name), b"x")
    for limit in (1, 2, 3, 1000):
        found = [item.key.text async for item in storage.iterate(limit=limit)]
        assert found == names, f"in pages of {limit}"
    below = [item.key.text async for item in storage.iterate(ObjectKey("a"), after=ObjectKey("a/1"), limit=1)]
    assert below == ["a/2", "a/3"]


async def test_a_wrapper_round_list_is_one_round_iterate() -> None:
    calls: list[Call] = []
    storage = MeteredStorage(MemoryStorage(), calls.append)
    for name in ("a", "b", "c"):
        await storage.put(ObjectKey(name), b"x")
    del calls[:]
    assert len([item async for item in storage.iterate(limit=2)]) == 3
    assert [call.name for call in calls] == ["list", "list"]

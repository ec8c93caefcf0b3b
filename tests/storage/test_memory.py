"""`memory://` keeps the contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.backends import odd_etag

from protoslice.storage import MemoryStorage, Storage
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

"""The fixtures of the tests about repositories."""

from collections.abc import AsyncIterator

import pytest
from tests.support.stores import opened

from protoslice.repositories import Repositories
from protoslice.storage import MemoryStorage


@pytest.fixture
def storage() -> MemoryStorage:
    """Return the storage of the repositories."""
    return MemoryStorage()


@pytest.fixture
async def repositories(storage: MemoryStorage) -> AsyncIterator[Repositories]:
    """Return new repositories in memory."""
    async with opened(storage) as stores:
        yield Repositories(stores)

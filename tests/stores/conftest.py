"""Fixtures of tests of the stores."""

from collections.abc import AsyncIterator

import pytest
from tests.support.stores import opened

from protoslice.storage import MemoryStorage
from protoslice.stores import Stores


@pytest.fixture
def storage() -> MemoryStorage:
    """Return an empty storage."""
    return MemoryStorage()


@pytest.fixture
async def stores(storage: MemoryStorage) -> AsyncIterator[Stores]:
    """Return the stores of the default space in `storage`."""
    async with opened(storage) as stores:
        yield stores

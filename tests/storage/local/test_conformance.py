"""`file://` keeps the contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

from protoslice.storage import FileStorage, Storage
from protoslice.testing import Raw, RawFiles, StorageConformance


class TestFiles(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        with TemporaryDirectory() as root:
            async with FileStorage(root) as storage:
                yield storage, RawFiles(root)

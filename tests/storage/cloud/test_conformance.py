"""`s3://` keeps the contract: against an emulator here, and a real server where one is named."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from tests.support.s3 import RawBucket, emulator

from protoslice.storage import Storage
from protoslice.storage.bucket import CloudStorage
from protoslice.testing import Raw, StorageConformance


class TestS3(StorageConformance):
    server: ExitStack
    options: dict[str, str]

    @classmethod
    def setup_class(cls) -> None:
        cls.server = ExitStack()
        cls.options = cls.server.enter_context(emulator())

    @classmethod
    def teardown_class(cls) -> None:
        cls.server.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        raw = RawBucket.make(self.options)
        async with CloudStorage.from_uri(raw.uri, self.options) as storage:
            yield storage, raw

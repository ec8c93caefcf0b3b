"""`file://` and `s3://` fulfil the contract; `http://` and `https://` fulfil its reading part.

`s3://` runs against an emulator here, and against a real server if one is named. Web sources run against a server on
this machine. PROTOSLICE_TEST_S3, _GS and _AZ each name a bucket as a URI. A variable with the suffix `_OPTIONS` has the
storage's options as a JSON object, for options that the cloud tools' environment lacks
(`docs/how-to/contribute/storage.md` has examples).
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from tests.support.backends import bucket_folder
from tests.support.s3 import RawBucket, emulator
from tests.support.web import web_server

from protoslice.storage import FileStorage, Storage
from protoslice.storage.bucket import CloudStorage
from protoslice.storage.web import WebStorage
from protoslice.testing import Raw, RawFiles, RawThroughStorage, ReadingConformance, StorageConformance


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


class TestFiles(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        with TemporaryDirectory() as root:
            async with FileStorage(root) as storage:
                yield storage, RawFiles(root)


class TestWeb(ReadingConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        with web_server() as raw:
            async with WebStorage(f"http://localhost:{raw.port}/files", networks=["127.0.0.0/8", "::1/128"]) as storage:
                yield storage, raw


@asynccontextmanager
async def twice(variable: str) -> AsyncIterator[tuple[Storage, Raw]]:
    """Return the storage, and another opening of the same storage."""
    uri, options = bucket_folder(variable)
    async with CloudStorage.from_uri(uri, options) as storage, CloudStorage.from_uri(uri, options) as other:
        yield storage, RawThroughStorage(other)


if bucket_folder("PROTOSLICE_TEST_S3")[0]:

    class TestRealS3(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            uri, options = bucket_folder("PROTOSLICE_TEST_S3")
            parts = urlsplit(uri)
            async with CloudStorage.from_uri(uri, options) as storage:
                yield storage, RawBucket(parts.netloc, parts.path.strip("/"), options)


if bucket_folder("PROTOSLICE_TEST_GS")[0]:

    class TestRealGoogle(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            async with twice("PROTOSLICE_TEST_GS") as opened:
                yield opened


if bucket_folder("PROTOSLICE_TEST_AZ")[0]:

    class TestRealAzure(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            async with twice("PROTOSLICE_TEST_AZ") as opened:
                yield opened

"""Buckets of real servers, and of emulators that run by themselves.

PROTOSLICE_TEST_S3, _GS and _AZ each name a bucket as a URI; with `_OPTIONS` behind the name, the storage's options as a
JSON object, where the environment of the cloud's own tools does not say all (`docs/how-to/contribute/storage.md`
has examples).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.support.backends import bucket_folder
from tests.support.s3 import RawBucket

from protoslice.storage import Storage
from protoslice.storage.bucket import CloudStorage
from protoslice.testing import Raw, RawThroughStorage, StorageConformance


@asynccontextmanager
async def twice(variable: str) -> AsyncIterator[tuple[Storage, Raw]]:
    """The storage, and another opening of the same."""
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

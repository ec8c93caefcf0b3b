"""Buckets of real servers, and of emulators that run by themselves.

PROTOSLICE_TEST_S3, _GS and _AZ each name a bucket as a URI; with `_OPTIONS` behind the name, the storage's options as a
JSON object, where the environment of the cloud's own tools does not say all (docs/storage.md has examples).
"""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from secrets import token_hex
from urllib.parse import urlsplit

from protoslice.storage import Storage
from protoslice.storage.cloud import CloudStorage
from protoslice.testing import Raw, RawThroughStorage, StorageConformance
from protoslice.testing.s3 import RawBucket


def named(variable: str) -> tuple[str, Mapping[str, str]]:
    """A folder of its own in the bucket that the environment names, and the options."""
    base = os.environ.get(variable, "").rstrip("/")
    options: Mapping[str, str] = json.loads(os.environ.get(f"{variable}_OPTIONS") or "{}")
    return f"{base}/protoslice-{token_hex(8)}" if base else "", options


@asynccontextmanager
async def twice(variable: str) -> AsyncIterator[tuple[Storage, Raw]]:
    """The storage, and another opening of the same."""
    uri, options = named(variable)
    async with CloudStorage.from_uri(uri, options) as storage, CloudStorage.from_uri(uri, options) as other:
        yield storage, RawThroughStorage(other)


if named("PROTOSLICE_TEST_S3")[0]:

    class TestRealS3(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            uri, options = named("PROTOSLICE_TEST_S3")
            parts = urlsplit(uri)
            async with CloudStorage.from_uri(uri, options) as storage:
                yield storage, RawBucket(parts.netloc, parts.path.strip("/"), options)


if named("PROTOSLICE_TEST_GS")[0]:

    class TestRealGoogle(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            async with twice("PROTOSLICE_TEST_GS") as opened:
                yield opened


if named("PROTOSLICE_TEST_AZ")[0]:

    class TestRealAzure(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            async with twice("PROTOSLICE_TEST_AZ") as opened:
                yield opened

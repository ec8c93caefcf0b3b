"""`s3://` against a real server: where PROTOSLICE_TEST_S3 holds a URI, with credentials in the AWS_* variables."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from urllib.parse import urlsplit

from protoslice.storage import Storage
from protoslice.storage.cloud import CloudStorage
from protoslice.testing import Raw, StorageConformance
from protoslice.testing.s3 import RawBucket

URI = os.environ.get("PROTOSLICE_TEST_S3", "").rstrip("/")

if URI:

    class TestRealS3(StorageConformance):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
            parts = urlsplit(f"{URI}/protoslice-{token_hex(8)}")
            async with CloudStorage.from_uri(parts.geturl(), {}) as storage:
                yield storage, RawBucket(parts.netloc, parts.path.strip("/"), {})

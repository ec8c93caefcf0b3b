"""`http://` and `https://` keep what reading promises, against a server on this machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.web import web_server

from protoslice.storage import Storage
from protoslice.storage.web import WebStorage
from protoslice.testing import Raw, ReadingConformance


class TestWeb(ReadingConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        with web_server() as raw:
            async with WebStorage(f"http://localhost:{raw.port}/files", networks=["127.0.0.0/8", "::1/128"]) as storage:
                yield storage, raw

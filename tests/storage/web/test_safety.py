"""Attacks by web servers on the service that reads from them."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.certificates import certificate
from tests.support.web import web_server

from protoslice.errors import (
    Conflict,
    IntegrityError,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageUnavailable,
    Unsupported,
)
from protoslice.storage import ObjectKey, open_storage
from protoslice.storage.sources import open_source
from protoslice.storage.web import WebStorage

KEY = ObjectKey("a.pb")
HERE = ["127.0.0.0/8", "::1/128"]
T = TypeVar("T")
GOOD = 'HTTP/1.1 206 X\r\nETag: "t"\r\nContent-Range: bytes 2-5/10\r\nContent-Length: 4\r\n\r\n2345'


def asked(answer: str, work: Callable[[WebStorage], Awaitable[T]]) -> T:
    """The result of `work` on a server that answers every request with the same bytes, then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer.encode("latin-1"))
        writer.close()

    async def run() -> T:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with server, WebStorage(f"http://127.0.0.1:{port}", networks=HERE) as storage:
                return await work(storage)
        finally:
            server.close()

    return asyncio.run(run())


def test_a_good_answer() -> None:
    assert asked(GOOD, lambda storage: storage.get_range(KEY, 2, 6)) == b"2345"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("HTTP/1.1 200 X\r\nETag: \"t\"\r\nContent-Length: 10\r\n\r\n0123456789", Unsupported),
        ("HTTP/1.1 301 X\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", StorageDenied),
        ("HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", StorageDenied),
        ("HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n", StorageDenied),
        ("HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n", StorageDenied),
        ("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", NotFound),
        ("HTTP/1.1 412 X\r\nContent-Length: 0\r\n\r\n", Conflict),
        ("HTTP/1.1 416 X\r\nContent-Range: bytes */3\r\nContent-Length: 0\r\n\r\n", IntegrityError),
        ("HTTP/1.1 416 X\r\nContent-Length: 0\r\n\r\n", StorageUnavailable),
        ("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", StorageUnavailable),
        ("HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n", StorageUnavailable),
        (GOOD.replace("2-5/10", "2-4/5").replace("th: 4", "th: 3").replace("2345", "234"), IntegrityError),
        (GOOD.replace("2-5/10", "0-3/10"), StorageUnavailable),
        (GOOD.replace("2-5/10", "2-6/10"), StorageUnavailable),
        (GOOD.replace("2-5/10", "2-5/*"), StorageUnavailable),
        (GOOD.replace("Content-Range: bytes 2-5/10\r\n", ""), StorageUnavailable),
        (GOOD.replace("ETag: \"t\"", "ETag: W/\"t\""), Unsupported),
        (GOOD.replace("ETag: \"t\"\r\n", ""), Unsupported),
        (GOOD.replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n"), Unsupported),
        (GOOD.replace("2345", "23"), StorageUnavailable),
        (GOOD.replace("Length: 4", "Length: 9").replace("2345", "234567890"), StorageUnavailable),
        ("no HTTP at all", StorageUnavailable),
        ("", StorageUnavailable),
    ],
)  # fmt: skip
def test_every_other_answer_is_an_error(answer: str, kind: type[ProtosliceError]) -> None:
    async def work(storage: WebStorage) -> None:
        with pytest.raises(kind) as caught:
            await storage.get_range(KEY, 2, 6)
        assert "a.pb" in str(caught.value)
        assert "127.0.0.1" not in str(caught.value)

    asked(answer, work)


def test_a_server_that_ignores_the_condition_is_found_out() -> None:
    async def work(storage: WebStorage) -> None:
        with pytest.raises(Conflict):
            await storage.get_range(KEY, 2, 6, if_etag='"another"')

    asked(GOOD, work)


async def test_what_is_not_public_is_not_visited() -> None:
    with web_server() as raw:
        raw.objects["a.pb"] = b"secret"
        for host in ("localhost", "127.0.0.1", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"):
            for storage in (
                open_storage(f"http://{host}:{raw.port}/files"),
                open_source(f"http://{host}:{raw.port}/files"),
            ):
                async with storage:
                    with pytest.raises((StorageDenied, StorageUnavailable)):
                        await storage.stat(KEY)


def test_writing_and_listing_are_told_to_be_impossible() -> None:
    async def work(storage: WebStorage) -> None:
        for call in (
            storage.put(KEY, b""),
            storage.writer(KEY),
            storage.delete(KEY),
            storage.list(),
        ):
            with pytest.raises(Unsupported):
                await call

    asked(GOOD, work)


@pytest.mark.parametrize(("name", "good"), [("localhost", True), ("other.example", False)])
async def test_tls_is_checked_against_the_name_of_the_host(tmp_path: Path, name: str, good: bool) -> None:
    server, trusted = certificate(tmp_path, name)
    client = ssl.create_default_context(cafile=trusted)
    with web_server(server) as raw:
        raw.objects["a.pb"] = b"0123456789"
        async with WebStorage(f"https://localhost:{raw.port}/files", networks=HERE, tls=client) as storage:
            if good:
                assert await storage.get_range(KEY, 2, 5) == b"234"
            else:
                with pytest.raises(StorageUnavailable):
                    await storage.get_range(KEY, 2, 5)

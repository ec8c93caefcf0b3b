"""Redirects of web sources: followed within the address policy, each hop checked anew.

Attacks by web servers on the service that reads from them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
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
from protoslice.storage import ObjectKey, open_storage, web_guard
from protoslice.storage.sources import open_source
from protoslice.storage.web import WebStorage
from protoslice.storage.web_guard import MOST_HOPS, Networks, WebUrl, next_url

KEY = ObjectKey("a.pb")
HERE = ["127.0.0.1/32"]
GOOD = 'HTTP/1.1 206 X\r\nETag: "t"\r\nContent-Range: bytes 2-5/10\r\nContent-Length: 4\r\n\r\n2345'
PUBLIC, PRIVATE = "93.184.216.34", "10.1.2.3"


def to(location: str, status: int = 302) -> str:
    return f"HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 5\r\n\r\nmoved"


@dataclass
class Web:
    """A server that answers paths, and the heads of the requests that it got."""

    port: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    heads: list[list[str]] = field(default_factory=list)
    connections: int = 0
    serving: list[asyncio.Task[None] | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.append(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
                self.heads.append(head)
                writer.write(self.answers[head[0].split()[1]].encode())
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def web() -> AsyncIterator[Web]:
    found = Web()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await asyncio.gather(*(task for task in found.serving if task is not None))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that claim public and private addresses; every permitted connection goes to this machine."""

    async def resolve(host: str, port: int, networks: Networks) -> Sequence[str]:
        claimed = {"cdn.example": PUBLIC, "inside.example": PRIVATE}.get(host, host)
        if not networks.permit(ip_address(claimed)):
            raise StorageDenied(f"host {host!r} has a private address")
        return ["127.0.0.1"]

    monkeypatch.setattr(web_guard, "resolve", resolve)


def asked(
    answers: Callable[[int], dict[str, str]], networks: Sequence[str] = HERE, prefixes: Sequence[str] = (), **more: str
) -> tuple[bytes, Web]:
    """Bytes 2 to 5 of the source, and the server; `answers` is told its port."""

    async def work() -> tuple[bytes, Web]:
        async with web() as server:
            server.answers = answers(server.port)
            root = f"http://127.0.0.1:{server.port}/files"
            listed = [prefix.format(port=server.port) for prefix in prefixes]
            async with open_source(root, networks=networks, prefixes=listed) as storage:
                return await storage.get_range(KEY, 2, 6, **more), server

    return asyncio.run(work())


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_presigned_link_is_followed(status: int) -> None:
    data, server = asked(
        lambda port: {
            "/files/a.pb": to(f"http://cdn.example:{port}/b;c?sig=%2Fx&a=1#z", status),
            "/b;c?sig=%2Fx&a=1": GOOD,
        },
        if_etag='"t"',
    )
    assert data == b"2345"
    assert [head[0] for head in server.heads] == ["GET /files/a.pb HTTP/1.1", "GET /b;c?sig=%2Fx&a=1 HTTP/1.1"]


@pytest.mark.usefixtures("names")
def test_nothing_but_a_range_request_goes_to_another_origin() -> None:
    _, server = asked(
        lambda port: {
            "/files/a.pb": to(f"http://cdn.example:{port}/b").replace("\r\n", "\r\nSet-Cookie: a=b\r\n", 1),
            "/b": GOOD,
        }
    )
    assert server.heads[1][1:] == [f"Host: cdn.example:{server.port}", "Accept-Encoding: identity", "Range: bytes=2-5"]


@pytest.mark.usefixtures("names")
def test_the_last_entity_tag_is_the_pin() -> None:
    answers = {"/b": GOOD}
    with pytest.raises(Conflict):
        asked(lambda port: {"/files/a.pb": to(f"http://cdn.example:{port}/b"), **answers}, if_etag='"other"')


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://inside.example:{port}/b", "a private address"),
        ("http://127.0.0.1:{port}/b", "a private address"),
        ("http://127.0.0.2:{port}/files/b", "a private address"),
        ("/b", "a private address"),
        ("/files/../b", "a private address"),
        ("http://169.254.169.254/latest", "a private address"),
        ("http://[::1]:{port}/b", "a private address"),
        ("http://user:word@cdn.example:{port}/b", "other than a web URL"),
        ("ftp://cdn.example/b", "other than a web URL"),
        ("file:///etc/passwd", "other than a web URL"),
        ("http://cdn.example:{port}/a b", "other than a web URL"),
        ("http://cdn.example:99999999/b", "other than a web URL"),
        ("http://[/b", "other than a web URL"),
        ("", "other than a web URL"),
        ("/files/a.pb", "more than 5 times"),
    ],
)
def test_a_redirect_that_leads_elsewhere_is_refused(location: str, why: str) -> None:
    with pytest.raises(StorageDenied) as caught:
        asked(lambda port: {"/files/a.pb": to(location.format(port=port)), "/b": GOOD, "/files/b": GOOD})
    assert why in str(caught.value)
    assert "a.pb" in str(caught.value)
    assert "example" not in str(caught.value), "the client learns no name that it did not give"


@pytest.mark.usefixtures("names")
def test_listed_networks_are_reached_below_listed_prefixes() -> None:
    networks = [*HERE, f"{PRIVATE}/32"]
    for prefixes in ([], ["http://inside.example:{port}/other"], ["https://inside.example:{port}/"]):
        with pytest.raises(StorageDenied):
            asked(lambda port: {"/files/a.pb": to(f"http://inside.example:{port}/b"), "/b": GOOD}, networks, prefixes)
    listed = ["http://inside.example:{port}/"]
    data, _ = asked(lambda port: {"/files/a.pb": to(f"http://inside.example:{port}/b"), "/b": GOOD}, networks, listed)
    assert data == b"2345"
    with pytest.raises(StorageDenied):
        asked(lambda port: {"/files/a.pb": to(f"http://inside.example:{port}/b"), "/b": GOOD}, HERE, listed)


@pytest.mark.usefixtures("names")
def test_five_redirects_are_followed_and_no_more() -> None:
    def chain(hops: int) -> Callable[[int], dict[str, str]]:
        steps = {f"/files/{n}": to(f"{n + 1}") for n in range(1, hops)}
        return lambda port: {"/files/a.pb": to("1"), **steps, f"/files/{hops}": GOOD}

    assert asked(chain(MOST_HOPS))[0] == b"2345"
    with pytest.raises(StorageDenied, match="more than 5 times"):
        asked(chain(MOST_HOPS + 1))


@pytest.mark.usefixtures("names")
def test_a_redirect_keeps_its_connection() -> None:
    _, server = asked(lambda port: {"/files/a.pb": to("b"), "/files/b": GOOD})
    assert server.connections == 1


@pytest.mark.usefixtures("names")
def test_https_does_not_lead_to_http() -> None:
    url = WebUrl("https", "host.example", "/a")
    assert next_url(url, 302, "https://OTHER.example:443/b") == WebUrl("https", "other.example", "/b")
    assert next_url(WebUrl("http", "h", "/a"), 302, "https://other.example") == WebUrl("https", "other.example", "/")
    assert next_url(url, 304, "/b") is None
    with pytest.raises(StorageDenied, match="from https to http"):
        next_url(url, 302, "http://other.example/b")
    with pytest.raises(StorageDenied, match="other than a web URL"):
        next_url(url, 302, "/" + "a" * 9000)


@pytest.mark.usefixtures("names")
def test_a_storage_of_its_own_follows_to_public_addresses() -> None:
    async def work() -> bytes:
        async with web() as server:
            server.answers = {"/a.pb": to(f"http://cdn.example:{server.port}/b"), "/b": GOOD}
            async with WebStorage(f"http://cdn.example:{server.port}") as storage:
                return await storage.get_range(KEY, 2, 6)

    assert asyncio.run(work()) == b"2345"


LOOPBACK = ["127.0.0.0/8", "::1/128"]
T = TypeVar("T")


def result_of(answer: str, work: Callable[[WebStorage], Awaitable[T]]) -> T:
    """The result of `work` on a server that answers every request with the same bytes, then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer.encode("latin-1"))
        writer.close()

    async def run() -> T:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with server, WebStorage(f"http://127.0.0.1:{port}", networks=LOOPBACK) as storage:
                return await work(storage)
        finally:
            server.close()

    return asyncio.run(run())


def test_a_good_answer() -> None:
    assert result_of(GOOD, lambda storage: storage.get_range(KEY, 2, 6)) == b"2345"


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

    result_of(answer, work)


def test_a_server_that_ignores_the_condition_is_found_out() -> None:
    async def work(storage: WebStorage) -> None:
        with pytest.raises(Conflict):
            await storage.get_range(KEY, 2, 6, if_etag='"another"')

    result_of(GOOD, work)


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

    result_of(GOOD, work)


@pytest.mark.parametrize(("name", "good"), [("localhost", True), ("other.example", False)])
async def test_tls_is_checked_against_the_name_of_the_host(tmp_path: Path, name: str, good: bool) -> None:
    server, trusted = certificate(tmp_path, name)
    client = ssl.create_default_context(cafile=trusted)
    with web_server(server) as raw:
        raw.objects["a.pb"] = b"0123456789"
        async with WebStorage(f"https://localhost:{raw.port}/files", networks=LOOPBACK, tls=client) as storage:
            if good:
                assert await storage.get_range(KEY, 2, 5) == b"234"
            else:
                with pytest.raises(StorageUnavailable):
                    await storage.get_range(KEY, 2, 5)

"""Redirects of web sources: followed within the address policy, each hop checked anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest

from protoslice.errors import Conflict, StorageDenied
from protoslice.storage import ObjectKey, web_guard
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


@pytest.fixture(autouse=True)
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


def test_nothing_but_a_range_request_goes_to_another_origin() -> None:
    _, server = asked(
        lambda port: {
            "/files/a.pb": to(f"http://cdn.example:{port}/b").replace("\r\n", "\r\nSet-Cookie: a=b\r\n", 1),
            "/b": GOOD,
        }
    )
    assert server.heads[1][1:] == [f"Host: cdn.example:{server.port}", "Accept-Encoding: identity", "Range: bytes=2-5"]


def test_the_last_entity_tag_is_the_pin() -> None:
    answers = {"/b": GOOD}
    with pytest.raises(Conflict):
        asked(lambda port: {"/files/a.pb": to(f"http://cdn.example:{port}/b"), **answers}, if_etag='"other"')


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


def test_five_redirects_are_followed_and_no_more() -> None:
    def chain(hops: int) -> Callable[[int], dict[str, str]]:
        steps = {f"/files/{n}": to(f"{n + 1}") for n in range(1, hops)}
        return lambda port: {"/files/a.pb": to("1"), **steps, f"/files/{hops}": GOOD}

    assert asked(chain(MOST_HOPS))[0] == b"2345"
    with pytest.raises(StorageDenied, match="more than 5 times"):
        asked(chain(MOST_HOPS + 1))


def test_a_redirect_keeps_its_connection() -> None:
    _, server = asked(lambda port: {"/files/a.pb": to("b"), "/files/b": GOOD})
    assert server.connections == 1


def test_https_does_not_lead_to_http() -> None:
    url = WebUrl("https", "host.example", "/a")
    assert next_url(url, 302, "https://OTHER.example:443/b") == WebUrl("https", "other.example", "/b")
    assert next_url(WebUrl("http", "h", "/a"), 302, "https://other.example") == WebUrl("https", "other.example", "/")
    assert next_url(url, 304, "/b") is None
    with pytest.raises(StorageDenied, match="from https to http"):
        next_url(url, 302, "http://other.example/b")
    with pytest.raises(StorageDenied, match="other than a web URL"):
        next_url(url, 302, "/" + "a" * 9000)


def test_a_storage_of_its_own_follows_to_public_addresses() -> None:
    async def work() -> bytes:
        async with web() as server:
            server.answers = {"/a.pb": to(f"http://cdn.example:{server.port}/b"), "/b": GOOD}
            async with WebStorage(f"http://cdn.example:{server.port}") as storage:
                return await storage.get_range(KEY, 2, 6)

    assert asyncio.run(work()) == b"2345"

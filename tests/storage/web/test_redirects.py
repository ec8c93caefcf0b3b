"""Redirects of web sources: they are followed within the address policy, and each hop is checked again.

Attacks by web servers on the service that reads from them. The address policy compares prefixes by segment, and refuses
addresses by their kind.
"""

from __future__ import annotations

import asyncio
import socket
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
    InvalidInput,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageUnavailable,
    Unsupported,
)
from protoslice.storage import FileStorage, ObjectKey, open_storage, web_guard
from protoslice.storage.sources import allowed, open_source
from protoslice.storage.web import WebStorage
from protoslice.storage.web_guard import MOST_HOPS, Networks, WebUrl, is_private, next_url, resolve

KEY = ObjectKey("a.pb")
HERE = ["127.0.0.1/32"]
GOOD = 'HTTP/1.1 206 X\r\nETag: "t"\r\nContent-Range: bytes 2-5/10\r\nContent-Length: 4\r\n\r\n2345'
PUBLIC, PRIVATE = "93.184.216.34", "10.1.2.3"


def to(location: str, status: int = 302) -> str:
    return f"HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 5\r\n\r\nmoved"


@dataclass
class Web:
    """A server that answers paths, and the heads of the received requests."""

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
    """Resolve names to public and private addresses; every permitted connection goes to this machine."""

    async def resolve(host: str, port: int, networks: Networks) -> Sequence[str]:
        claimed = {"cdn.example": PUBLIC, "inside.example": PRIVATE}.get(host, host)
        if not networks.permit(ip_address(claimed)):
            raise StorageDenied(f"host {host!r} has a private address")
        return ["127.0.0.1"]

    monkeypatch.setattr(web_guard, "resolve", resolve)


def asked(
    answers: Callable[[int], dict[str, str]], networks: Sequence[str] = HERE, prefixes: Sequence[str] = (), **more: str
) -> tuple[bytes, Web]:
    """Return bytes 2 to 5 of the source, and the server; `answers` receives its port."""

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
    """Return the result of `work` on a server that answers every request with the same bytes, then closes."""

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


PUBLIC_ADDRESSES = [
    "1.1.1.1",
    "8.8.8.8",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]
PRIVATE_ADDRESSES = [
    "0.0.0.0", "10.0.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1",
    "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC_ADDRESSES)
def test_public_addresses(text: str) -> None:
    assert not is_private(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE_ADDRESSES)
def test_addresses_that_are_not_public_whatever_wraps_them(text: str) -> None:
    assert is_private(ip_address(text))


def test_listed_networks_may_be_visited() -> None:
    networks = Networks("10.1.0.0/16", "fd00::/8")
    assert networks.permit(ip_address("10.1.2.3"))
    assert networks.permit(ip_address("fd00::1"))
    assert not networks.permit(ip_address("10.2.0.1"))
    assert not networks.permit(ip_address("::ffff:10.1.2.3")), "listed as it stands"
    with pytest.raises(InvalidInput):
        Networks("10.1.0.1/16")


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "::1", "0"]
)
def test_no_spelling_of_this_machine_gets_by(host: str) -> None:
    with pytest.raises((StorageDenied, StorageUnavailable)):
        asyncio.run(resolve(host, 80, Networks()))


def test_one_address_that_is_not_public_spoils_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 80)) for text in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with pytest.raises(StorageDenied):
        asyncio.run(resolve("mixed.example", 80, Networks()))
    assert asyncio.run(resolve("mixed.example", 80, Networks("10.0.0.0/8"))) == ["8.8.8.8", "10.0.0.1"]


def test_unknown_hosts() -> None:
    for host in ("no-such-host.invalid", "a" * 64 + ".example", "", "bad host"):
        with pytest.raises((StorageUnavailable, StorageDenied)):
            asyncio.run(resolve(host, 80, Networks()))


PREFIXES = [
    "s3://models/public",
    "s3://all",
    "https://models.example.org/files/",
    "file:///srv/models",
    "s3://models/public/deep",
]


@pytest.mark.parametrize(
    ("uri", "root", "key"),
    [
        ("s3://models/public/a.onnx", "s3://models/public", "a.onnx"),
        ("S3://models/public/x/y 1.pb", "s3://models/public", "x/y 1.pb"),
        ("s3://models/public/deep/a", "s3://models/public/deep", "a"),
        ("s3://models/public/%2e%2e/a", "s3://models/public", "%2e%2e/a"),
        ("s3://all/a?b#c", "s3://all", "a?b#c"),
        ("https://Models.Example.ORG:443/files/a%20b", "https://models.example.org/files/", "a b"),
        ("https://models.example.org/%66iles/a", "https://models.example.org/files/", "a"),
        ("file:///srv/models/x/a.pb", "file:///srv/models", "x/a.pb"),
        ("file://localhost/srv/models/a", "file:///srv/models", "a"),
    ],
)
def test_what_lies_under_a_prefix_is_allowed(uri: str, root: str, key: str) -> None:
    found = allowed(uri, PREFIXES)
    assert (found.root, found.key) == (root, ObjectKey(key))
    assert allowed(found.uri, PREFIXES) == found


@pytest.mark.parametrize(
    "uri",
    [
        "s3://models/private/a", "s3://models/publicity/a", "s3://models/public", "s3://Models/public/a", "s3://other/public/a",
        "https://models.example.org/other/a", "http://models.example.org/files/a", "https://models.example.org:444/files/a",
        "https://models.example.org.evil.example/files/a", "https://evil.example/models.example.org/files/a",
        "https://models.example.org./files/a", "file:///srv/a", "file:///srv/models2/a", "file:///etc/passwd", "gs://all/a",
    ],
)  # fmt: skip
def test_what_does_not_is_denied(uri: str) -> None:
    with pytest.raises(StorageDenied):
        allowed(uri, PREFIXES)


@pytest.mark.parametrize(
    "uri",
    [
        "", "a.onnx", "//models/public/a", "s3:models/public/a", "s3://models/public/../private/a", "s3://models/public//a",
        "s3://models/public/", "s3://models/public/./a", "s3://user:secret@models/public/a", "s3://models/public/a\n",
        "https://models.example.org/files/..%2fa", "https://models.example.org/files/%2e%2e/a", "https://models.example.org/files/%2e/a",
        "https://models.example.org/files/a?x=1", "https://models.example.org/files/a#x", "https://models.example.org/files/%ff",
        "https://models.example.org/files/%00", "https://models.example.org/files/a\\b", "https://models.example.org/files/%5c",
        "https://user@models.example.org/files/a", "https://models.example.org@evil.example/files/a", "https:///files/a",
        "https://models.ex\u0430mple.org/files/a", "https://[::1/files/a", "https://models.example.org:x/files/a",
        "file://host/srv/models/a", "file:///srv/models/../a", "file:///srv/models/%2e%2e/a", "file://srv/models/a",
    ],
)  # fmt: skip
def test_what_is_no_clean_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInput):
        allowed(uri, PREFIXES)


def test_an_empty_list_allows_nothing() -> None:
    with pytest.raises(StorageDenied):
        allowed("https://models.example.org/a", [])


def test_a_file_prefix_cannot_be_left_by_links(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "models" / "folder").symlink_to(tmp_path)

    async def work() -> None:
        for name in ("link", "folder/secret"):
            source = allowed(f"file://{tmp_path}/models/{name}", [f"file://{tmp_path}/models"])
            async with open_source(source.root) as storage:
                assert isinstance(storage, FileStorage)
                with pytest.raises((StorageDenied, NotFound)):
                    await storage.stat(source.key)

    asyncio.run(work())
    with pytest.raises(NotFound):
        open_source(f"file://{tmp_path}/missing")
    assert not (tmp_path / "missing").exists()

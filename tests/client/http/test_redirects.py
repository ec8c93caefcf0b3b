"""Redirects: headers and tokens for one service reach no other one, with any HTTP client."""

from __future__ import annotations

import asyncio
import gc
import http.server
import json
import os
import socketserver
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from tests.support.wire import in_a_thread

from protoslice.client import AsyncClient, Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.errors import (
    IntegrityError,
    InvalidInput,
    ProtosliceError,
    StorageDenied,
    StorageError,
    StorageUnavailable,
)
from protoslice.sources.opening import as_source

SECRETS = {"Authorization": "Bearer secret", "X-Api-Key": "secret", "Cookie": "session=secret"}
PAGE = json.dumps({"items": [{"name": "a", "store": "1" * 64, "updated": "2026-11-21T10:00:00Z"}], "next": None})


class Site:
    """A web server that answers every request by `answers`: with a redirect, or with a page."""

    def __init__(self, held: ExitStack) -> None:
        self.seen: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.place: Callable[[], str | None] = lambda: None
        self.status = 307
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.seen.append({name.lower(): value for name, value in self.headers.items()})
                site.bodies.append(self.rfile.read(int(self.headers.get("content-length", "0"))))
                place = site.place()
                self.send_response(200 if place is None else site.status)
                if place is not None:
                    self.send_header("location", place)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "0" if place else str(len(PAGE)))
                self.end_headers()
                self.wfile.write(b"" if place else PAGE.encode())

            do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - the names that the class looks for

            def log_message(self, *_: object) -> None:
                pass

        self.url = (
            f"http://{held.enter_context(in_a_thread(socketserver.ThreadingTCPServer(('127.0.0.1', 0), Handler)))}"
        )

    def secrets(self) -> list[dict[str, str]]:
        """Return the headers of each request that hold secrets of one service."""
        return [{name: value for name, value in each.items() if "secret" in value} for each in self.seen]


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    with ExitStack() as held:
        yield Site(held), Site(held)


ALL = {name.lower(): value for name, value in SECRETS.items()}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_header_of_the_user_goes_to_another_port(sites: tuple[Site, Site], status: int) -> None:
    one, other = sites
    one.status, one.place = status, lambda: f"{other.url}/v1/tags"
    with Client(one.url, headers=SECRETS) as client:
        assert [tag.name for tag in client.tags()] == ["a"]
    assert (one.secrets(), other.secrets()) == ([ALL], [{}])
    assert other.seen[0]["user-agent"] == "protoslice", "what is no secret is sent as ever"


def test_another_name_of_the_host_is_another_origin(sites: tuple[Site, Site]) -> None:
    one, other = sites
    one.place = lambda: f"{other.url.replace('127.0.0.1', 'localhost')}/v1/tags"
    with Client(one.url, headers=SECRETS) as client:
        list(client.tags())
    assert other.secrets() == [{}]


def test_within_the_origin_they_stay(sites: tuple[Site, Site]) -> None:
    one, _ = sites
    places = iter(["/elsewhere", f"{one.url}/again", None])
    one.place = lambda: next(places)
    with Client(one.url, headers=SECRETS) as client:
        list(client.tags())
    assert one.secrets() == [ALL] * 3


def test_they_do_not_come_back_either(sites: tuple[Site, Site]) -> None:
    """A site that redirects back must not learn the headers of the second request."""
    one, other = sites
    places = iter([f"{other.url}/v1/tags", None])
    one.place, other.place = lambda: next(places), lambda: f"{one.url}/back"
    with Client(one.url, headers=SECRETS) as client:
        list(client.tags())
    assert (one.secrets(), other.secrets()) == ([ALL, {}], [{}])


def test_a_file_system_sends_them_nowhere_else(sites: tuple[Site, Site]) -> None:
    one, other = sites
    one.place = lambda: f"{other.url}/v1/tags"
    files = StoreFileSystem(options={"headers": SECRETS, "attempts": 1}, skip_instance_cache=True)
    with pytest.raises(IntegrityError):
        files.cat_file(f"{one.url.removeprefix('http://')}/a/files/b")
    assert one.secrets()
    assert all(one.secrets())
    assert other.seen
    assert not any(other.secrets())


@pytest.mark.parametrize(
    "call",
    [
        lambda client: list(client.tags()),
        lambda client: client.source("a", "files/b").size,
        lambda client: client.push(b"\x0a\x01a", type="tensorflow.GraphDef"),
    ],
)
def test_connections_close_with_their_client_without_the_garbage_collector(
    sites: tuple[Site, Site], call: Callable[[Client], object]
) -> None:
    one, _ = sites
    one.place = lambda: f"{one.url}/v1/tags"
    gc.collect()
    gc.disable()
    try:
        client = Client(one.url, attempts=1)
        kept = weakref.ref(client._connection)
        with suppress(ProtosliceError):
            call(client)
            raise AssertionError("the call did not fail")
        del client
        assert kept() is None
    finally:
        gc.enable()


def test_a_push_is_not_sent_elsewhere(sites: tuple[Site, Site]) -> None:
    """The body is used up when the redirect arrives, and only the user may decide who else receives it."""
    one, other = sites
    one.place = lambda: f"{other.url}/v1/stores?token=1"
    with Client(one.url, headers=SECRETS) as client, pytest.raises(StorageDenied) as caught:
        client.push(b"\x0a\x01a", type="tensorflow.GraphDef")
    assert caught.value.message == f"The service redirects uploads: use the URL {other.url}/v1/stores"
    assert other.seen == []


def test_a_circle_ends(sites: tuple[Site, Site]) -> None:
    one, _ = sites
    one.place = lambda: f"{one.url}/v1/tags"
    with Client(one.url) as client, pytest.raises(StorageError, match="redirects more than"):
        list(client.tags())
    assert len(one.seen) < 50


def test_a_place_that_is_none(sites: tuple[Site, Site]) -> None:
    one, _ = sites
    kinds = {"ftp://127.0.0.1/a": InvalidInput, "http://[::1": StorageUnavailable, "https://": StorageUnavailable}
    for place, kind in kinds.items():
        one.place = lambda place=place: place  # type: ignore[misc]
        with Client(one.url, headers=SECRETS, attempts=1) as client, pytest.raises(kind):
            list(client.tags())


def test_what_is_asked_in_json_is_asked_again(sites: tuple[Site, Site]) -> None:
    one, other = sites
    one.place = lambda: f"{other.url}/v1/tags/a"
    with Client(one.url, headers=SECRETS) as client, pytest.raises(IntegrityError):
        client.tag("a", "1" * 64)
    assert json.loads(other.bodies[0]) == {"store": "1" * 64}
    assert other.secrets() == [{}]


BEARER: Final = {"authorization": "Bearer secret"}


def plain(url: str, _: Path) -> None:
    with Client(url, headers=SECRETS, attempts=1) as client:
        list(client.tags())


def asynchronous(url: str, _: Path) -> None:
    async def work() -> None:
        async with AsyncClient(url, headers=SECRETS, attempts=1) as client:
            [tag async for tag in client.tags()]

    asyncio.run(work())


def file_system(url: str, _: Path) -> None:
    files = StoreFileSystem(options={"headers": SECRETS, "attempts": 1}, skip_instance_cache=True)
    files.cat_file(f"{url.removeprefix('http://')}/a/files/b")


def small_push(url: str, folder: Path) -> None:
    (folder / "small").write_bytes(b"x")
    with Client(url, headers=SECRETS, attempts=1) as client:
        client.push(folder / "small")


def pull(url: str, folder: Path) -> None:
    with Client(url, headers=SECRETS, attempts=1) as client:
        client.download("a", folder / "pulled")


def by_tus(url: str, folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(64 << 20)
    with Client(url, headers=SECRETS, attempts=1) as client:
        client.push(folder / "large")


def verb(*given: str, **environment: str) -> Callable[[str, Path], None]:
    """A verb of the command line, with settings that hold a secret."""

    def run(url: str, folder: Path) -> None:
        if not environment:
            kept = folder / "protoslice/credentials.json"
            kept.parent.mkdir()
            kept.write_text(json.dumps({url: "secret"}))
            kept.chmod(0o600)
        command = [sys.executable, "-m", "protoslice.cli", *(each.replace("URL", url) for each in given)]
        told = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(folder), "PROTOSLICE_URL": url, **environment}
        ended = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60)
        assert "secret" not in ended.stdout + ended.stderr

    return run


CLIENTS: Final[dict[str, tuple[Callable[[str, Path], None], dict[str, str]]]] = {
    "Client": (plain, ALL),
    "AsyncClient": (asynchronous, ALL),
    "fsspec": (file_system, ALL),
    "a pull": (pull, ALL),
    "a push": (small_push, ALL),
    "tus": (by_tus, ALL),
    "a verb with a token": (verb("ls", PROTOSLICE_TOKEN="secret"), BEARER),
    "a verb with a header": (verb("ls", PROTOSLICE_AUTHORIZATION="Bearer secret"), BEARER),
    "a verb of someone who logged in": (verb("ls"), BEARER),
    "a verb that changes": (verb("token", "create", "x", "--scope", "read", PROTOSLICE_TOKEN="secret"), BEARER),
}
"""The clients, and the secrets that the service receives from each."""


@pytest.mark.parametrize("name", CLIENTS)
def test_no_client_tells_another_origin(sites: tuple[Site, Site], tmp_path: Path, name: str) -> None:
    one, other = sites
    one.place = lambda: f"{other.url}/v1/tags"
    call, told = CLIENTS[name]
    with suppress(ProtosliceError):
        call(one.url, tmp_path)
    assert one.secrets()
    assert all(each == told for each in one.secrets()), "the service is told"
    assert other.seen or name == "a push", "a body that is used up is sent nowhere else"
    assert not any(other.secrets())


def test_a_source_is_told_no_secret_at_all(
    sites: tuple[Site, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROTOSLICE_TOKEN", "PROTOSLICE_AUTHORIZATION"):
        monkeypatch.setenv(name, "Bearer secret")
    monkeypatch.setenv("PROTOSLICE_URL", sites[0].url)
    one, other = sites
    one.place = lambda: f"{other.url}/m.onnx"
    with suppress(ProtosliceError):
        as_source(f"{one.url}/m.onnx")
    assert one.seen
    assert not any(one.secrets() + other.secrets())

"""Tests of the nginx files in a real nginx on the loopback: its answers equal the service's answers.

They are not part of `make test`, as they need nginx. `make nginx` runs them.
"""

from __future__ import annotations

import getpass
import hashlib
import http.client
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.deployment.nginx.front import FILES, FOLDER, ask, nginx, same, wait_for
from tests.deployment.nginx.upstream import (
    BY_TAG,
    DATA,
    EMPTY,
    ENDLESS,
    ENDLESS_SIZE,
    FILE,
    SMALL,
    UPLOAD,
    Running,
    Upstream,
)

ETAG = f'"sha256-{hashlib.sha256(DATA).hexdigest()}"'


@dataclass(frozen=True)
class Site:
    """nginx in front of one running replica and one that is down."""

    port: int
    direct: int
    app: Upstream
    caches: bool


@pytest.fixture(params=FILES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with Running() as upstream, nginx(request.param, tmp_path, upstream.port) as port:
        yield Site(port, upstream.port, upstream.app, request.param == "nginx-cache.conf")


cache_only = pytest.mark.parametrize("site", ["nginx-cache.conf"], indirect=True)


@pytest.mark.parametrize("path", [FILE, BY_TAG, SMALL, EMPTY])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Range": "bytes=0-0"},
        {"Range": "bytes=8388600-8388620"},
        {"Range": "bytes=20971640-"},
        {"Range": "bytes=-7"},
        {"Range": "bytes=5-99999999"},
        {"Range": "bytes=100-"},
        {"Range": "bytes=-0"},
        {"Range": "bytes=99999999-"},
        {"Range": "bytes=0-3,9000000-9000005,-1"},
        {"Range": "items=0-1"},
        {"Range": "bytes=1-3", "If-Range": ETAG},
        {"Range": "bytes=1-3", "If-Range": '"other"'},
        {"If-None-Match": ETAG},
        {"If-Match": ETAG},
        {"If-Match": '"other"'},
        {"Accept-Encoding": "gzip, br"},
    ],
)
def test_answers_are_those_of_the_service(site: Site, path: str, method: str, headers: dict[str, str]) -> None:
    direct = ask(site.direct, path, method, **headers)
    for _ in range(2):
        answer = ask(site.port, path, method, **headers)
        if site.caches and path == EMPTY and method == "GET" and answer.status == 416:  # as good as our 200
            assert answer.headers["content-range"] == "bytes */0"
        else:
            same(answer, direct, site.caches and path != BY_TAG)


def test_errors_come_through(site: Site) -> None:
    for path in ("/v1/stores/none", FILE + "x"):
        same(ask(site.port, path), ask(site.direct, path), cache=False)


def test_requests_have_one_name(site: Site) -> None:
    assert ask(site.port, FILE, Range="bytes=0-1", X_Request_ID="mine").headers["x-request-id"] == "mine"
    assert re.fullmatch("[0-9a-f]{32}", ask(site.port, FILE, Range="bytes=0-1").headers["x-request-id"])


@pytest.mark.parametrize("chunked", [False, True])
def test_uploads_are_not_gathered_first(site: Site, chunked: bool) -> None:
    piece = DATA[: 64 << 10]
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {3 * len(piece)}"
    framed = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
        client.sendall(f"POST {UPLOAD} HTTP/1.1\r\nHost: a\r\n{length}\r\nConnection: close\r\n\r\n".encode())
        for n in range(3):
            client.sendall(framed)
            wait_for(lambda n=n: len(site.app.received) == (n + 1) * len(piece))  # type: ignore[misc]
        client.sendall(b"0\r\n\r\n" if chunked else b"")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 201")
    assert hashlib.sha256(piece * 3).hexdigest().encode() in answer
    sent = site.app.requests[-1][2]
    assert ("transfer-encoding" in sent) == chunked
    assert ("content-length" in sent) != chunked


def test_a_large_upload_passes(site: Site) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)) as connection:
        connection.request("POST", UPLOAD, body=DATA)
        response = connection.getresponse()
        assert (response.status, response.read().decode()) == (201, hashlib.sha256(DATA).hexdigest())


def test_a_refusal_comes_before_the_body(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
        client.sendall(
            f"POST {UPLOAD} HTTP/1.1\r\nHost: a\r\nX-Refuse: 1\r\nContent-Length: 999999999\r\n\r\n".encode()
        )
        client.sendall(bytes(1000))
        assert client.recv(65536).startswith(b"HTTP/1.1 413")


def test_who_waits_for_100_gets_it(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
        lines = [f"POST {UPLOAD} HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 3", "Connection: close"]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert b"".join(iter(lambda: client.recv(65536), b"")).startswith(b"HTTP/1.1 201")
    assert site.app.received == b"abc"


@pytest.mark.parametrize("site", ["nginx.conf"], indirect=True)
def test_a_slow_reader_is_felt_by_the_service(site: Site) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)) as connection:
        connection.request("GET", ENDLESS)
        response = connection.getresponse()
        assert len(response.read(1 << 20)) == 1 << 20
        seen = -1
        while seen != site.app.sent:  # until the counter no longer changes
            seen = site.app.sent
            time.sleep(0.5)
        assert seen < ENDLESS_SIZE // 4
        rest = sum(len(piece) for piece in iter(lambda: response.read(1 << 20), b""))
        assert rest == ENDLESS_SIZE - (1 << 20)


@cache_only
def test_pieces_are_fetched_once(site: Site) -> None:
    first = ask(site.port, FILE, Range="bytes=9000000-9000009")
    assert first.headers["cache-status"] == "nginx; fwd=uri-miss"
    assert [headers["range"] for _, _, headers in site.app.requests] == ["bytes=8388608-16777215"]
    again = ask(site.port, FILE, Range="bytes=9999990-9999999", X_Request_ID="second")
    assert (again.body, again.headers["cache-status"]) == (DATA[9999990:10000000], "nginx; hit")
    assert again.headers["x-request-id"] == "second"
    assert len(site.app.requests) == 1
    assert ask(site.port, FILE).body == DATA
    assert len(site.app.requests) == 3


@cache_only
def test_any_range_of_cached_pieces_is_exact(site: Site) -> None:
    chance = random.Random(20261121)
    for _ in range(60):
        start = chance.randrange(len(DATA))
        end = min(len(DATA), start + chance.choice([1, 100, 70_000, 9_000_000]))
        answer = ask(site.port, FILE, Range=f"bytes={start}-{end - 1}")
        assert answer.status == 206
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
        assert answer.body == DATA[start:end]
    assert len(site.app.requests) == 3


@cache_only
def test_what_is_not_immutable_is_not_kept(site: Site) -> None:
    for path in (BY_TAG, FILE + "x"):
        before = len(site.app.requests)
        for _ in range(2):
            ask(site.port, path, Range="bytes=0-9")
        assert len(site.app.requests) == before + 2


@cache_only
def test_kinds_of_answers_are_kept_apart(site: Site) -> None:
    for kind in ("application/protobuf", "application/json"):
        assert ask(site.port, FILE, Range="bytes=0-9", Accept=kind).headers["cache-status"] == "nginx; fwd=uri-miss"
        sent = site.app.requests[-1][2]
        assert (sent["accept"], sent.get("accept-encoding")) == (kind, None)
        assert ask(site.port, FILE, Range="bytes=0-9", Accept=kind).headers["cache-status"] == "nginx; hit"


@cache_only
def test_answers_to_pages_of_different_origins_are_kept_apart(site: Site) -> None:
    """The cache separates answers that one origin may read from answers for another origin or for none."""
    for again in (False, True):
        for origin in ("https://one.example", "https://two.example", None):
            said = {} if origin is None else {"Origin": origin}
            answer = ask(site.port, FILE, Range="bytes=0-9", **said)
            assert answer.headers.get("access-control-allow-origin") == origin
            assert (answer.headers["cache-status"] == "nginx; hit") == again


@cache_only
def test_no_origin_passes_for_part_of_another_accept(site: Site) -> None:
    forged = {"Accept": "text/html,", "Origin": "application/protobuf https://one.example"}
    assert "access-control-allow-origin" not in ask(site.port, FILE, Range="bytes=0-9", **forged).headers
    honest = {"Accept": "text/html, application/protobuf", "Origin": "https://one.example"}
    answer = ask(site.port, FILE, Range="bytes=0-9", **honest)
    assert answer.headers["access-control-allow-origin"] == "https://one.example"


@pytest.mark.parametrize("name", [*FILES, "nginx-private-cache.conf"])
def test_nginx_file_starts_before_one_service_as_shipped(name: str, tmp_path: Path) -> None:
    """Only the folders that some users may not write to are replaced."""
    text = (FOLDER / name).read_text().replace("/var/cache/nginx", str(tmp_path)).replace("/tmp/nginx", f"{tmp_path}/n")
    (tmp_path / "nginx.conf").write_text(text)
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
    assert program, "nginx is not installed"
    own = f"user {getpass.getuser()};"
    command = [program, "-t", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-e", "stderr", "-g", own]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

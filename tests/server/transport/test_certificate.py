"""The service's TLS: only modern versions; certificate files are read again when they change, and only as a pair.

Answers to requests whose body is still arriving: a client that writes before it reads still receives them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography import x509
from tests.support.certificates import certificate
from tests.support.serve import LiveServer, assert_problem, exchange, read_answer

from protoslice.client import Client
from protoslice.errors import InvalidInput
from protoslice.server.settings import Settings
from protoslice.server.transport import protocol
from protoslice.server.transport import run as watching
from protoslice.server.transport.run import Certificate, certificate_of


def pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a certificate for `name`, and of its key."""
    folder.mkdir(exist_ok=True)
    certificate(folder, name)
    return folder / "certificate.pem", folder / "key.pem"


def served(context: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection receives."""
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    server = context.wrap_bio(ours, theirs, server_side=True)
    client = anybody.wrap_bio(theirs, ours)
    for _ in range(4):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.getpeercert(True) or b""


@pytest.mark.parametrize("broken", [False, True])
async def test_files_are_taken_anew_unless_they_are_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    files, other = pair(tmp_path / "a", "localhost"), pair(tmp_path / "b", "localhost")
    made = Certificate(*files)
    made.expires = 0.0
    before = served(made.context)
    assert before
    assert made.context.minimum_version is ssl.TLSVersion.TLSv1_2
    shutil.copy(other[0], files[0])
    if not broken:
        shutil.copy(other[1], files[1])
    looks: list[float] = []

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) > 2:
            raise asyncio.CancelledError

    # Only for this module, because `asyncio.sleep` belongs to every server in this process.
    monkeypatch.setattr(watching, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    with pytest.raises(asyncio.CancelledError):
        await made.watch()
    assert (served(made.context) == before) is broken
    assert (made.expires == 0) is broken, "the end is that of the certificate that clients get"


def use(change: Callable[[Path, Path], tuple[Path | None, Path | None]], folder: Path) -> Settings:
    """Return settings with a pair, changed."""
    given = change(*pair(folder, "localhost"))
    return Settings(tls_cert=given[0], tls_key=given[1])


def test_a_pair_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    for change, said in (
        (lambda first, second: (first, None), "or neither"),
        (lambda first, second: (None, second), "or neither"),
        (lambda first, second: (second, first), "not a PEM certificate and its key"),
        (lambda first, second: (first, tmp_path / "none"), "No such file"),
    ):
        with pytest.raises(InvalidInput, match=said):
            certificate_of(use(change, tmp_path / "x"))
    assert certificate_of(Settings()) is None


def test_the_service_speaks_tls_to_curl_and_to_our_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, key = pair(tmp_path / "a", "localhost")
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", "--storage", "memory://"]
    command += ["--tls-cert", str(first), "--tls-key", str(key)]
    room = os.environ | {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=room, text=True) as process:
        try:
            assert process.stdout is not None
            scheme, _, port = process.stdout.readline().strip().rpartition(":")
            assert scheme == "https://127.0.0.1"
            url = f"https://localhost:{port}"
            curl = ["curl", "-s", "--cacert", str(first), "--tls-max", "1.2", f"{url}/livez"]
            assert b"ok" in subprocess.run(curl, capture_output=True, check=True).stdout
            monkeypatch.setenv("SSL_CERT_FILE", str(first))
            with Client(url) as client:
                assert list(client.stores()) == []
            shown = subprocess.run([*curl[:-1], f"{url}/metrics"], capture_output=True, check=True, text=True).stdout
            (end,) = re.findall(r"^protoslice_certificate_expiry_timestamp_seconds (\S+)$", shown, re.MULTILINE)
            end_of = x509.load_pem_x509_certificate(first.read_bytes()).not_valid_after_utc.timestamp()
            assert float(end) == pytest.approx(end_of, abs=1)
        finally:
            process.terminate()


PING = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


def closing_put(size: int, more: bytes = b"") -> bytes:
    """Return the head of an upload after which the connection must be closed."""
    head = b"PUT /v1/stores?filename=a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    return head + more + b"content-length: %d\r\n\r\n" % size


@pytest.mark.parametrize(
    ("more", "expected", "slug"),
    [(b"", 413, "limit-exceeded"), (b"content-encoding: gzip\r\n", 415, "unsupported-media-type")],
)
def test_a_client_that_sends_all_before_it_reads_sees_a_refusal(
    serving: Any, more: bytes, expected: int, slug: str
) -> None:
    with serving(max_upload_bytes=1000) as live, live.connect() as connection:
        connection.sendall(closing_put(20 << 20, more))
        for _ in range(20):
            connection.sendall(bytes(1 << 20))
        answer = read_answer(connection)
        assert_problem(answer.status, answer.headers, answer.body, expected=expected, slug=slug)
        assert answer.headers["connection"] == "close"
        assert connection.recv(1) == b"", "the service has said all it says"


def test_a_request_behind_a_refused_one_is_not_served(serving: Any) -> None:
    with serving(max_upload_bytes=1000) as live, live.connect() as connection:
        connection.sendall(closing_put(2000) + bytes(2000) + PING)
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
        assert received.count(b"HTTP/1.1 ") == 1


def test_a_client_that_sends_without_end_is_cut_off(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER_BYTES", 1 << 20)
    with serving(max_upload_bytes=1000) as live, live.connect() as connection:
        connection.sendall(closing_put(1 << 40))
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(256 << 20))
        assert exchange(live, PING).status == 200


def test_a_client_that_goes_on_for_long_is_cut_off(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(protocol, "LINGER_BYTES", 1 << 40)
    with serving(max_upload_bytes=1000) as live, live.connect() as connection:
        connection.sendall(closing_put(1 << 40))
        read_answer(connection)
        assert connection.recv(1) == b""
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(256 << 20))
        assert exchange(live, PING).status == 200


def test_a_head_that_is_refused(service: LiveServer) -> None:
    with service.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ")
        for _ in range(16):
            connection.sendall(b"y" * (1 << 20))
        answer = read_answer(connection)
        assert_problem(answer.status, answer.headers, answer.body, expected=431, slug="header-too-large")


EARLY = {
    400: b"PUT /v1/stores?filename=a&nothing=1 HTTP/1.1",
    403: b"POST /v1/stores?filename=a HTTP/1.1\r\nsec-fetch-site: cross-site",
    404: b"POST /v1/nothing HTTP/1.1",
    405: b"PUT /v1/tags HTTP/1.1",
    415: b"PUT /v1/stores?filename=a HTTP/1.1\r\ncontent-encoding: gzip",
}
"""The requests that are answered before their bodies are read, by status."""


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize(
    ("framing", "kept"),
    [
        (b"content-length: 38797312", False),
        (b"transfer-encoding: chunked", False),
        (b"expect: 100-continue\r\ncontent-length: 9", False),
        (b"content-length: 9", True),
    ],
)
def test_an_answer_before_the_body_says_whether_the_connection_is_kept(
    service: LiveServer, framing: bytes, status: int, kept: bool
) -> None:
    with service.connect() as connection:
        connection.sendall(b"%b\r\nhost: localhost\r\n%b\r\n\r\n" % (EARLY[status], framing))
        answer = read_answer(connection)
        assert answer.status in {status, 413}  # a long body is refused first
        assert answer.headers.get("connection") == (None if kept else "close")
        if kept:
            connection.sendall(bytes(9) + PING)
            assert read_answer(connection).status == 200
        else:
            assert connection.recv(1) == b""


def test_a_client_with_one_connection_sends_large_bodies_that_are_refused(service: LiveServer) -> None:
    with httpx.Client(base_url=service.url, limits=httpx.Limits(max_connections=1)) as client:
        for _ in range(3):
            refused = client.post("/v1/nothing?x=1", content=bytes(37 << 20))
            assert (refused.status_code, refused.headers["connection"]) == (404, "close")

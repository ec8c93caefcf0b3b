"""Answers to requests whose body still comes: a client that writes before it reads gets to see them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, assert_problem, exchange, read_answer

from protoslice.server.transport import protocol

PING = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


def closing_put(size: int, more: bytes = b"") -> bytes:
    """The head of an upload after which the connection is to be closed."""
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
"""Requests that are answered before their bodies are read, by status."""


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

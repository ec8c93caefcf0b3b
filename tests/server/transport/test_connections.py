"""The limits of connections over real sockets, and the addresses on which a service listens."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from contextlib import ExitStack
from hashlib import sha256
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, assert_problem, exchange, logs_to, read_answer, service_process
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from protoslice.server.request import body as request_body
from protoslice.server.request.middleware import OPERATING
from protoslice.server.transport import protocol
from protoslice.server.transport.protocol import RESERVE

PING = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


def upload_head(more: bytes) -> bytes:
    return b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\n" + more + b"\r\n"


CHUNKED = upload_head(b"transfer-encoding: chunked\r\n")
TAGS = PING.replace(b"/livez", b"/v1/tags")
BUSY = upload_head(b"content-length: 100000\r\n") + b"\x0a"
"""The beginning of an upload that stays in progress, so that its connection cannot be closed for others."""


def busy(live: LiveServer, held: ExitStack, count: int) -> list[socket.socket]:
    """Open `count` connections with a request in progress."""
    connections = list[socket.socket]()
    for number in range(1, count + 1):
        connections.append(held.enter_context(live.connect()))
        connections[-1].sendall(BUSY)
        await_value(live, "protoslice_open_uploads", number)
    return connections


def await_value(live: LiveServer, metric: str, value: float) -> None:
    deadline = time.monotonic() + 10
    while f"{metric} {value:.1f}" not in exchange(live, GET_METRICS).body.decode():
        assert time.monotonic() < deadline


GET_METRICS = PING.replace(b"/livez", b"/metrics")


def test_every_refusal_of_the_transport_is_recorded(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the id that the client received, its address and a reason; the metrics count it."""
    refused = {
        "no HTTP": (b"\x16\x03\x01" + bytes(100), "bad-request", 400),
        "a version": (PING.replace(b"1.1", b"3.0"), "bad-request", 400),
        "a long head": (PING[:-2] + b"x: " + b"a" * 5000 + b"\r\n\r\n", "header-too-large", 431),
        "a long head without end": (PING[:-2] + b"x: " + b"a" * 5000, "header-too-large", 431),
        "a late head": (PING[:-2], "request-timeout", 408),
        "two lengths": (upload_head(b"content-length: 1\r\ncontent-length: 2\r\n"), "bad-request", 400),
        "a malformed body": (CHUNKED + b"x\r\n", "bad-request", 400),
        "a trailer": (CHUNKED + b"0\r\n\x00: a\r\n\r\n", "bad-request", 400),
    }
    out = StringIO()
    monkeypatch.setattr(protocol, "HEAD_BYTES", 2048)
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    with logs_to(out, "json", "info"), serving() as live:
        answers = {name: exchange(live, sent) for name, (sent, _, _) in refused.items()}
        metrics = exchange(live, GET_METRICS).body.decode()
        with serving(max_connections_per_client=1) as full, full.connect() as one:
            one.sendall(BUSY)
            await_refused(full)
            answers["one too many"] = exchange(full, TAGS)
            refused["one too many"] = (b"", "client-limit", 429)
    logged = [json.loads(line) for line in out.getvalue().splitlines()]
    lines = {line["request_id"]: line for line in logged if line["event"] == "request"}
    for name, (_, slug, status) in refused.items():
        answer = answers[name]
        assert answer.status == status, name
        line = lines[json.loads(answer.body)["request_id"]]
        assert (line["route"], line["status"], line["problem"]) == ("unparsed", status, slug), name
        assert (line["client"], line["reason"]) == ("127.0.0.1", json.loads(answer.body)["detail"]), name
        assert answer.headers["x-request-id"] == line["request_id"]
    for status, times in Counter(status for _, slug, status in refused.values() if slug != "client-limit").items():
        assert f'protoslice_requests_total{{method="",route="unparsed",status="{status}"}} {times:.1f}' in metrics


def await_refused(live: LiveServer) -> None:
    """Wait until the client has its single connection."""
    deadline = time.monotonic() + 10
    while exchange(live, TAGS).status != 429:
        assert time.monotonic() < deadline


def test_more_connections_than_allowed(serving: Any) -> None:
    with serving(max_connections=3) as live:
        with ExitStack() as held:
            busy(live, held, 3)
            for _ in range(2 * RESERVE):
                answer = exchange(live, TAGS)
                problem = assert_problem(answer.status, answer.headers, answer.body, expected=503, slug="too-busy")
                assert "the limit is 3" in problem["detail"]
                assert answer.headers["connection"] == "close"
            for path in sorted(OPERATING):
                answer = exchange(live, TAGS.replace(b"/v1/tags", path.encode()))
                assert (answer.status, answer.headers["connection"]) == (200, "close"), path
        await_answer(live)


@pytest.mark.parametrize("sent", [b"", b"GET /v1/tags HTT", TAGS])
def test_a_full_service_closes_the_connection_that_has_waited_longest(serving: Any, sent: bytes) -> None:
    """A connection has sent nothing, half a head, or an answered request; the next request uses another connection."""
    with serving(max_connections=4) as live, ExitStack() as held:
        idle = [held.enter_context(live.connect()) for _ in range(4)]
        for connection in idle:
            connection.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                assert read_answer(connection).status == 200
        for connection in idle[:2]:
            newest = held.enter_context(live.connect())
            newest.sendall(TAGS)
            assert read_answer(newest).status == 200
            if sent.startswith(b"GET") and sent != TAGS:
                answer = read_answer(connection)
                assert_problem(answer.status, answer.headers, answer.body, expected=503, slug="too-busy")
            assert ended(connection)
        idle[3].sendall(TAGS if sent == TAGS else TAGS.removeprefix(sent))
        assert read_answer(idle[3]).status == 200, "the others stay"


def ended(connection: socket.socket) -> bool:
    """Return True once the service has closed the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_operating_routes_are_answered_beyond_the_share_of_a_client(serving: Any) -> None:
    """The limit's connections are busy, and others beyond it send nothing; the newest connection is still answered."""
    with serving(max_connections_per_client=2) as live, ExitStack() as held:
        busy(live, held, 2)
        for _ in range(RESERVE + 3):
            held.enter_context(live.connect())
        for path in sorted(OPERATING):
            assert exchange(live, TAGS.replace(b"/v1/tags", path.encode())).status == 200, path
        assert exchange(live, TAGS).status == 429


def await_answer(live: LiveServer) -> None:
    """Wait until the service has noticed that the other connections left, and answers again."""
    deadline = time.monotonic() + 5
    while exchange(live, TAGS).status != 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("framing", [b"content-length: 100000\r\n", b"transfer-encoding: chunked\r\n"])
def test_an_upload_that_only_trickles(serving: Any, monkeypatch: pytest.MonkeyPatch, framing: bytes) -> None:
    """Only its rate reveals a client that is never silent for long."""
    monkeypatch.setattr(request_body, "_GRACE_SECONDS", 0.3)
    drop = b"1\r\n\x00\r\n" if b"chunked" in framing else b"\x00"
    with serving(body_min_bytes_per_second=1000) as live, live.connect() as connection:
        connection.settimeout(0.02)
        connection.sendall(upload_head(framing))
        assert trickled(connection, drop)
        connection.settimeout(5)
        answer = read_answer(connection)
        problem = assert_problem(answer.status, answer.headers, answer.body, expected=408, slug="request-timeout")
        assert "1000 bytes" in problem["detail"]
        assert answer.headers["connection"] == "close"
        assert httpx.get(f"{live.url}/v1/stores").json()["items"] == []


def trickled(connection: socket.socket, drop: bytes) -> bool:
    """Send bytes slowly, until the service answers or closes the connection."""
    for _ in range(500):
        try:
            connection.sendall(drop)
            connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        return True
    return False


def test_a_steady_upload_may_be_slow(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "_GRACE_SECONDS", 0.3)
    with serving(body_min_bytes_per_second=1) as live, live.connect() as connection:
        connection.sendall(upload_head(b"content-length: 20\r\n") + b"\x0a\x12")
        for _ in range(18):
            time.sleep(0.03)
            connection.sendall(b"s")
        assert read_answer(connection).status == 201


@pytest.mark.parametrize("sent", [b"", b"5\r\n\x0a\x03", b"5\r\n\x0a\x03abc\r\n", b"5\r\n\x0a\x03abc\r\n0\r\n"])
def test_a_chunked_body_that_stalls(serving: Any, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(request_body, "PAUSE_SECONDS", 0.3)
    with serving() as live:
        answer = exchange(live, upload_head(b"transfer-encoding: chunked\r\n") + sent)
        assert_problem(answer.status, answer.headers, answer.body, expected=408, slug="request-timeout")
        assert httpx.get(f"{live.url}/v1/stores").json()["items"] == []


def test_a_chunked_body_that_does_not_parse(serving: Any) -> None:
    with serving() as live:
        for sent in (b"x\r\n\x0a\x01a\r\n", b"ffffffffffffffffff\r\na", b"-1\r\n", b"3\r\n\x0a\x01abcdef\r\n0\r\n\r\n"):
            answer = exchange(live, CHUNKED + sent)
            assert_problem(answer.status, answer.headers, answer.body, expected=400)
            assert httpx.get(f"{live.url}/v1/stores").json()["items"] == []
            assert exchange(live, PING).status == 200


def test_a_malformed_body_is_no_crash(
    serving: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heads = [PING, upload_head(b""), PING.replace(b"1.1", b"2.0"), PING.replace(b"host", b"x" * 3000)]
    bodies = [b"x\r\n", b"3\r\nabc\r\nzz\r\n\r\n", b"0\r\n\r\nx\r\n\r\n"]
    monkeypatch.setattr(protocol, "HEAD_BYTES", 2048)
    with serving() as live:
        for head, end, body in product(heads, [b"\r\n", b"\n"], bodies):
            chunked = head.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n" + end)
            assert exchange(live, chunked + body).status in {200, 201, 400, 431}, chunked + body
            assert exchange(live, PING).status == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR" or record.exc_info]


def test_an_answered_request_with_a_malformed_body_gets_no_second_answer(service: LiveServer) -> None:
    with service.connect() as connection:
        connection.sendall(PING.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n"))
        assert read_answer(connection).status == 200
        connection.sendall(b"3\r\nabc\r\nzz\r\n")
        assert connection.recv(100) == b""


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /livez?" + b"a" * 3000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 431),
        (PING[:-2] + b"".join(b"x-%d: y\r\n" % n for n in range(300)) + b"\r\n", 431),
        (PING[:-2] + b"x: " + b"a" * 1500 + b"\r\n\r\n", 200),
        (PING[:-2] + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (upload_head(b"content-length: 3\r\ntransfer-encoding: chunked\r\n"), 400),
        (upload_head(b"content-length: -3\r\n"), 400),
        (upload_head(b"content-length: +3\r\n"), 400),
        (upload_head(b"transfer-encoding: gzip\r\n"), 400),
        (upload_head(b"transfer-encoding: chunked, gzip\r\n"), 400),
        (upload_head(b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"), 400),
        *((PING.replace(b"1.1", version), 400) for version in (b"0.9", b"1.2", b"2.0", b"3.0")),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400),
    ],
)
def test_heads(serving: Any, monkeypatch: pytest.MonkeyPatch, head: bytes, expected: int) -> None:
    monkeypatch.setattr(protocol, "HEAD_BYTES", 2048)
    with serving() as live:
        answer = exchange(live, head)
        assert answer.status == expected
        if expected != 200:
            assert_problem(answer.status, answer.headers, answer.body, expected=expected)
            assert answer.headers["connection"] == "close"
        assert exchange(live, PING).status == 200


def test_a_coding_that_is_not_undone_is_refused(service: LiveServer) -> None:
    answer = exchange(service, upload_head(b"transfer-encoding: gzip, chunked\r\n") + b"3\r\n\x0a\x01a\r\n0\r\n\r\n")
    assert_problem(answer.status, answer.headers, answer.body, expected=400, slug="bad-request")


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"2;", b"a" * 1000),
        (b"", b"1;" + b"a" * 100 + b"\r\n\x0a\r\n"),
        (b"3\r\n\x0a\x01a\r\n0\r\n", b"x-more: " + b"b" * 1000 + b"\r\n"),
        (b"3\r\n\x0a\x01a\r\n0\r\nx-long: ", b"b" * 1000),
    ],
)
def test_a_body_of_framing_without_end_is_cut(
    serving: Any, monkeypatch: pytest.MonkeyPatch, begun: bytes, more: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_BYTES", 4096)
    with serving() as live, live.connect() as connection:
        connection.sendall(CHUNKED + begun)
        with pytest.raises(ConnectionError):
            connection.sendall(more * (64 << 10))
        assert exchange(live, PING).status == 200


def test_small_chunks_and_short_trailers_are_taken(service: LiveServer) -> None:
    body = b"\x0a\x7f" + b"s" * 127
    framed = (
        b"".join(b"0001;x=1\r\n%c\r\n" % byte for byte in body) + b"0\r\nx-sum: 1\r\nx-request-id: trailer-1\r\n\r\n"
    )
    answer = exchange(service, CHUNKED + framed)
    assert answer.status in {200, 201}
    assert answer.headers["x-request-id"] != "trailer-1"


def test_a_head_may_be_cut_anywhere(service: LiveServer) -> None:
    """The head follows a blank line, and offers another protocol whose name may be cut."""
    body = b"\x0a\x03cut"
    more = b"connection: upgrade\r\nUpgrade: h2c\r\ncontent-length: %d\r\n" % len(body)
    sent = b"\r\n" + upload_head(more)
    with service.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(sent)):
            for piece in (sent[:cut], sent[cut:] + body):
                connection.sendall(piece)
                time.sleep(0.001)
            assert json.loads(read_answer(connection).body)["files"][0]["sha256"] == sha256(body).hexdigest(), cut


@pytest.mark.parametrize(
    "begun",
    [b"\x16\x03\x01", b"hello", b"0", b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nhost: x\n", b"GET / HTTP/1.1\r\n\n"],
)
def test_what_cannot_become_a_head_is_refused_at_once(service: LiveServer, begun: bytes) -> None:
    answer = exchange(service, begun)
    assert_problem(answer.status, answer.headers, answer.body, expected=400, slug="bad-request")


def test_blank_lines_are_ignored(service: LiveServer) -> None:
    with service.connect() as connection:
        connection.sendall(b"\r\n" + PING + b"\r\n" * 40_000 + PING + b"\r\n\r\n" + PING)
        data = b""
        while data.count(b"HTTP/1.1 200 ") < 3 and (more := connection.recv(1 << 16)):
            data += more
        assert data.count(b"HTTP/1.1 200 ") == 3


def test_a_long_head_may_come_in_pieces(service: LiveServer) -> None:
    head = PING[:-2] + b"x-long: %b\r\n\r\n" % (b"a" * 60_000)
    with service.connect() as connection:
        for start in range(0, len(head), 17_000):
            connection.sendall(head[start : start + 17_000])
            assert exchange(service, PING).status == 200, "the loop has read what came before"
        assert read_answer(connection).status == 200


def test_blank_lines_hold_no_connection(serving: Any) -> None:
    with serving(keep_alive_seconds=1) as live, live.connect() as connection:
        connection.sendall(PING)
        assert read_answer(connection).status == 200
        connection.settimeout(0.02)
        assert trickled(connection, b"\r\n"), "the connection was held open"
        assert ended(connection)


def test_the_body_of_connect_is_no_request(service: LiveServer) -> None:
    with service.connect() as connection:
        connection.sendall(
            b"CONNECT /livez HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(PING) + PING
        )
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in received


def test_an_offer_of_another_protocol_is_passed_over(service: LiveServer) -> None:
    """With --http2, curl makes such an offer: with a body, and a second time over the same connection."""
    offer = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    body = b"\x0a\xa0\x8d\x06" + bytes(100_000)
    sized = upload_head(offer + b"content-length: %d\r\n" % len(body))
    chunked = upload_head(offer + b"transfer-encoding: chunked\r\n")
    asked = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + offer + b"\r\n"
    with service.connect() as connection:
        for sent in (
            [sized + body],
            [sized, body],
            [sized + body[:9], body[9:]],
            [chunked, b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n"],
        ):
            for piece in sent:
                connection.sendall(piece)
                time.sleep(0.05)
            answer = read_answer(connection)
            assert json.loads(answer.body)["files"][0]["sha256"] == sha256(body).hexdigest()
            connection.sendall(asked)
            assert read_answer(connection).status == 200
        connection.sendall(asked * 3 + upload_head(b"content-length: 1\r\n"))
        received = b""
        while received.count(b"ok") < 3:
            received += connection.recv(1 << 16)


def test_whoever_leaves_with_requests_in_line_is_no_error(tmp_path: Path) -> None:
    body = b"\x0a\x80\x80\x80\x04" + bytes(8 << 20)
    with service_process("--storage", tmp_path.as_uri()) as service:
        assert httpx.put(f"{service.url}/v1/stores?tag=t", content=body).status_code == 201
        with service.server.connect() as connection:
            connection.sendall(b"GET /v1/stores/t/merge HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5)
            assert connection.recv(9) == b"HTTP/1.1 "
        while "protoslice_open_requests 1.0" not in httpx.get(f"{service.url}/metrics").text:
            time.sleep(0.02)
        service.running.terminate()
        service.running.wait(10)
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    lines = [line for line in lines if line["event"] == "request"]
    assert {line["level"] for line in lines} == {"info"}
    assert len([line for line in lines if line["route"].endswith("/merge")]) == 1


def test_options_of_the_server_as_a_whole(service: LiveServer) -> None:
    answer = exchange(service, b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (answer.status, answer.body) == (204, b"")
    assert {"GET", "HEAD", "PUT", "OPTIONS"} < set(answer.headers["allow"].split(", "))


def test_an_idle_connection_is_closed(serving: Any) -> None:
    with serving(keep_alive_seconds=1) as live, live.connect() as connection:
        connection.sendall(PING)
        assert read_answer(connection).status == 200
        assert connection.recv(1) == b""


def has_ipv6() -> bool:
    """Return True if this machine's loopback has IPv6, which many containers lack."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_over_ipv6(tmp_path: Path) -> None:
    if not has_ipv6():
        with (
            pytest.raises(RuntimeError, match="Cannot listen on this address"),
            service_process("--host", "::1", "--storage", tmp_path.as_uri()),
        ):
            pass
        return
    with service_process("--host", "::1", "--storage", tmp_path.as_uri()) as service:
        assert service.url == f"http://[::1]:{service.server.port}"
        made = httpx.put(f"{service.url}/v1/stores?tag=six", content=b"\x0a\x03six")
        assert made.status_code == 201
        assert httpx.get(f"{service.url}/v1/stores/six/merge").content == b"\x0a\x03six"
        assert '"client":"::1"' in logged(service.log)


def logged(log: Path) -> str:
    """Return the log, as soon as it has a request; lines are written a few times a second."""
    deadline = time.monotonic() + 5
    while '"event":"request"' not in (text := log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return text


class Watched(RequestResponseCycle):
    """A request that counts how often other code checks whether it has been answered."""

    looks = 0

    @property
    def response_complete(self) -> bool:
        Watched.looks += 1
        return bool(self.__dict__.get("response_complete"))

    @response_complete.setter
    def response_complete(self, value: bool) -> None:
        self.__dict__["response_complete"] = value


def test_many_requests_sent_at_once_are_not_looked_through_for_each(
    service: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read may have thousands of requests; checking all of them for each one blocked the loop for seconds."""
    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", Watched)
    count, path = 2000, b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n"
    with service.connect() as connection:
        connection.sendall((path + b"\r\n") * (count - 1) + path + b"connection: close\r\n\r\n")
        received = b""
        while piece := connection.recv(1 << 20):
            received += piece
    assert received.count(b"HTTP/1.1 404 ") == count
    assert Watched.looks < 100 * count

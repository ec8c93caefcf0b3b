"""Clients: they are identified by address or proxy, and the limits of one client leave capacity for others."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import StringIO
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, RawAnswer, assert_problem, exchange, logs_to, read_answer

from protoslice.concurrency import shares
from protoslice.concurrency.windows import Window, Windows
from protoslice.errors import InvalidInput
from protoslice.server.request import body as request_body
from protoslice.server.request.clients import Clients, network_of, pseudonym
from protoslice.server.settings import Settings, read_settings

PING = b"GET /v1/tags HTTP/1.1\r\nhost: localhost\r\n\r\n"
HANGING = b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n"
BEGIN = b"POST /v1/uploads HTTP/1.1\r\nhost: localhost\r\ntus-resumable: 1.0.0\r\nupload-length: 9\r\n"
ARRIVING = {"tus-resumable": "1.0.0", "upload-defer-length": "1", "content-type": "application/offset+octet-stream"}
SMALL = b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n\x0a\x01a"
GREEDY, HONEST = "127.0.0.2", "127.0.0.3"


@contextmanager
def connected(live: LiveServer, source: str) -> Iterator[socket.socket]:
    """Open a connection from one of the many addresses that a loopback has."""
    with socket.create_connection((live.host, live.port), 10, (source, 0)) as connection:
        yield connection


def asked(live: LiveServer, source: str, request: bytes) -> RawAnswer:
    with connected(live, source) as connection:
        connection.sendall(request)
        return read_answer(connection)


def assert_over(answer: RawAnswer, said: str) -> None:
    problem = assert_problem(answer.status, answer.headers, answer.body, expected=429, slug="client-limit")
    assert said in problem["detail"]
    assert int(answer.headers["retry-after"]) > 0


def under_way(live: LiveServer) -> float:
    """Return the number of uploads in progress, from the service's metrics."""
    return metric(live, "protoslice_open_uploads")


def metric(live: LiveServer, name: str) -> float:
    lines = httpx.get(f"{live.url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_connections_of_one_client(serving: Any) -> None:
    with serving(max_connections=8, max_connections_per_client=3) as live:
        with ExitStack() as held:
            kept = [held.enter_context(connected(live, GREEDY)) for _ in range(3)]
            for connection in kept:
                connection.sendall(PING)
                assert read_answer(connection).status == 200
            for _ in range(20):
                answer = asked(live, GREEDY, PING)
                assert_over(answer, "This client has reached its limit of 3 connections")
                assert answer.headers["connection"] == "close"
            assert asked(live, HONEST, PING).status == 200
        until(lambda: asked(live, GREEDY, PING).status == 200)


def test_uploads_under_way_of_one_client(serving: Any) -> None:
    """Without the limit, sixteen sockets that hardly send anything would shut out all other clients."""
    with serving(upload_wait_seconds=0) as live, ExitStack() as held:
        for _ in range(8):
            held.enter_context(connected(live, GREEDY)).sendall(HANGING + b"\r\n\x0a")
        until(lambda: under_way(live) == 8)
        for _ in range(8):
            connection = held.enter_context(connected(live, GREEDY))
            connection.sendall(HANGING + b"\r\n\x0a")
            assert_over(read_answer(connection), "8 concurrent uploads")
        assert asked(live, HONEST, SMALL).status == 201
        assert asked(live, GREEDY, SMALL).status == 200, "it takes no place of those that are large"


def whole(number: int) -> bytes:
    """Return a request that uploads a file that is larger than small."""
    return HANGING + b"\r\n\x0a\x9c\x8d\x06" + bytes([number]) * 99_996


def requests(live: LiveServer) -> float:
    """Return the number of requests in progress, from the service's metrics, without this request."""
    return metric(live, "protoslice_open_requests") - 1


def test_uploads_beyond_the_limit_of_a_client_wait(serving: Any) -> None:
    """`oras push` sends five layers at once, and a client in parts far more; neither repeats a 429."""
    with serving(max_uploads=2, max_uploads_per_client=1) as live, ExitStack() as held:
        sockets = [held.enter_context(connected(live, GREEDY)) for _ in range(30)]
        for number, connection in enumerate(sockets):
            connection.sendall(whole(number)[:-1])
        until(lambda: requests(live) == 30)
        assert under_way(live) == 1
        assert asked(live, HONEST, whole(99)).status == 201, "the second place is free for others"
        for number, connection in enumerate(sockets):
            connection.sendall(bytes([number]))
        assert {read_answer(connection).status for connection in sockets} == {201}


def test_a_client_that_leaves_waits_no_more(serving: Any) -> None:
    """Its request ends at once, and the next one gets the place."""
    with serving(max_uploads=1) as live, ExitStack() as held:
        first = held.enter_context(connected(live, GREEDY))
        first.sendall(whole(1)[:-1])
        until(lambda: under_way(live) == 1)
        with connected(live, GREEDY) as leaving:
            leaving.sendall(HANGING + b"\r\n\x0a")
            until(lambda: requests(live) == 2)
        until(lambda: requests(live) == 1)
        second = held.enter_context(connected(live, HONEST))
        second.sendall(whole(2))
        until(lambda: requests(live) == 2)
        first.sendall(b"\x01")
        assert {read_answer(each).status for each in (first, second)} == {201}


def test_uploads_that_stall_give_way(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen silent uploads of two clients stopped the uploads of all others for a minute."""
    monkeypatch.setattr(shares, "LOOK_SECONDS", 0.2)
    with serving() as live, ExitStack() as held:
        stalled = [held.enter_context(connected(live, f"127.0.0.{4 + number % 2}")) for number in range(16)]
        for connection in stalled:
            connection.sendall(HANGING + b"\r\n\x0a")
        until(lambda: under_way(live) == 16)
        assert asked(live, HONEST, whole(1)).status == 201
        ended, _, _ = select.select(stalled, [], [], 10)
        answer = read_answer(ended[0])
        problem = assert_problem(answer.status, answer.headers, answer.body, expected=503, slug="too-busy")
        assert "while other uploads waited" in problem["detail"]
        assert int(answer.headers["retry-after"]) > 0
        assert under_way(live) == 15, "no more than were waited for"


def test_open_uploads_of_one_client(serving: Any) -> None:
    """Without this limit, one client could take every place for a day."""
    with serving() as live:
        with connected(live, GREEDY) as connection:
            statuses = []
            for _ in range(550):
                connection.sendall(BEGIN + b"\r\n")
                statuses.append(read_answer(connection).status)
        assert statuses == [201] * 500 + [429] * 50
        assert_over(asked(live, GREEDY, BEGIN + b"\r\n"), "This client has 500 open uploads")
        assert asked(live, HONEST, BEGIN + b"\r\n").status == 201


def test_readers_that_wait(serving: Any) -> None:
    """A reader that waits forever has one place, and releases it when it leaves."""
    with serving(max_waiting_readers=3, max_waiting_readers_per_client=2) as live, ExitStack() as held:
        begun = httpx.post(f"{live.url}/v1/uploads", headers={"tus-resumable": "1.0.0", "upload-defer-length": "1"})
        reading = f"{begun.headers['location']}/records?framing=delimited".encode()
        waiting = b"GET " + reading + b"&wait=30 HTTP/1.1\r\nhost: localhost\r\n\r\n"

        def waits(source: str) -> socket.socket:
            connection = held.enter_context(connected(live, source))
            connection.sendall(waiting)
            return connection

        def refused(source: str, status: int) -> bool:
            with connected(live, source) as connection:
                connection.sendall(waiting)
                connection.settimeout(0.2)
                with suppress(TimeoutError):
                    answer = read_answer(connection)
                    assert int(answer.headers["retry-after"]) > 0
                    assert json.loads(answer.body)["limit"] == {429: 2, 503: 3}[answer.status]
                    return answer.status == status
            return False

        first, _ = waits(GREEDY), waits(GREEDY)
        until(lambda: refused(GREEDY, 429))
        assert asked(live, GREEDY, waiting.replace(b"&wait=30", b"")).status == 200, "whoever asks again and again"
        waits(HONEST)
        until(lambda: refused(HONEST, 503))
        first.close()
        until(lambda: not refused(HONEST, 503))


def test_requests_under_way_of_one_client(serving: Any) -> None:
    with serving(max_requests_per_client=2) as live, ExitStack() as held:
        for _ in range(2):
            held.enter_context(connected(live, GREEDY)).sendall(HANGING + b"\r\n\x0a")
        until(lambda: asked(live, GREEDY, PING).status == 429)
        assert_over(asked(live, GREEDY, PING), "2 concurrent requests")
        assert asked(live, HONEST, PING).status == 200
        health = PING.replace(b"/v1/tags", b"/livez")
        assert asked(live, GREEDY, health).status == 200, "whoever watches over the service may come by the same proxy"


def test_bytes_not_taken_yet_count_for_the_client(
    service: LiveServer, model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = httpx.put(f"{service.url}/v1/stores?filename=model.onnx", content=model).json()["id"]
    clients, really = list[str](), Windows.open

    def watched(windows: Windows, length: int, client: str = "") -> Window:
        clients.append(client)
        return really(windows, length, client)

    monkeypatch.setattr(Windows, "open", watched)
    read = b"GET /v1/stores/%b/files/model.onnx HTTP/1.1\r\nhost: localhost\r\n\r\n" % store.encode()
    for source in (GREEDY, HONEST):
        assert asked(service, source, read).body == model
    assert clients == [GREEDY, HONEST]
    # Another route reads the records of an upload.
    url = httpx.post(f"{service.url}/v1/uploads?filename=a", headers=ARRIVING, content=b"\x01x").headers["location"]
    read = b"GET %b/records?framing=delimited HTTP/1.1\r\nhost: localhost\r\n\r\n" % url.encode()
    for source in (GREEDY, HONEST):
        assert asked(service, source, read).body == b"\x01x"
    assert clients[2:] == [GREEDY, HONEST]


def test_a_limit_of_none(serving: Any) -> None:
    none = dict.fromkeys(("max_connections_per_client", "max_requests_per_client", "max_uploads_per_client"), 0)
    with serving(max_uploads=2, upload_wait_seconds=0, **none) as live, ExitStack() as held:
        for _ in range(2):
            held.enter_context(connected(live, GREEDY)).sendall(HANGING + b"\r\n\x0a")
        until(lambda: under_way(live) == 2)
        assert asked(live, GREEDY, HANGING + b"\r\n\x0a").status == 503, "the limit for all together"


@pytest.mark.parametrize("header", [b"x-forwarded-for: %b\r\n", b"forwarded: for=%b;proto=https\r\n"])
def test_clients_behind_a_proxy_that_is_trusted(serving: Any, header: bytes) -> None:
    with (
        serving(
            auth="open", trusted_proxies=("127.0.0.9",), max_uploads=4, max_uploads_per_client=1, upload_wait_seconds=0
        ) as live,
        ExitStack() as held,
    ):
        said = [HANGING + header % address + b"\r\n\x0a" for address in (b"192.0.2.1", b"192.0.2.2", b"192.0.2.1")]
        for request in said[:2]:
            held.enter_context(connected(live, "127.0.0.9")).sendall(request)
        until(lambda: under_way(live) == 2)
        assert_over(asked(live, "127.0.0.9", said[2]), "1 concurrent uploads")
        # The header of any other client is not believed.
        held.enter_context(connected(live, GREEDY)).sendall(said[0])
        until(lambda: under_way(live) == 3)
        assert_over(asked(live, GREEDY, HANGING + header % b"192.0.2.3" + b"\r\n\x0a"), "1 concurrent uploads")


def test_a_proxy_that_is_trusted_has_any_number_of_connections(serving: Any) -> None:
    with (
        serving(auth="open", trusted_proxies=("127.0.0.9",), max_connections_per_client=1) as live,
        ExitStack() as held,
    ):
        for _ in range(3):
            connection = held.enter_context(connected(live, "127.0.0.9"))
            connection.sendall(PING)
            assert read_answer(connection).status == 200


PROXIES = ("10.0.0.0/8", "fd00::/8")


def address(
    *headers: tuple[bytes, bytes], peer: str | None = "10.0.0.1", proxies: tuple[str, ...] = PROXIES
) -> str | None:
    return Clients(Settings(storage="memory://", trusted_proxies=proxies)).address(peer, list(headers))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"192.0.2.1", "192.0.2.1"),
        (b"6.6.6.6, 192.0.2.1", "192.0.2.1"),
        (b"6.6.6.6, 192.0.2.1 ,10.7.7.7", "192.0.2.1"),
        (b"192.0.2.1:4711", "192.0.2.1"),
        (b"2001:db8::7", "2001:db8::7"),
        (b"[2001:db8::7]:80,fd00::1", "2001:db8::7"),
        (b"::ffff:192.0.2.1", "192.0.2.1"),
        (b"10.1.1.1, 10.2.2.2", "10.1.1.1"),
        (b"192.0.2.1, nonsense, 10.2.2.2", "10.2.2.2"),
        (b"10.1.1.1," * 5000 + b"10.1.1.1", "10.1.1.1"),
        *(
            (said, "10.0.0.1")
            for said in (b"192.0.2.1, nonsense", b"192.0.2.1,", b"", b"unknown", b"1.2.3", b"256.1.1.1")
        ),
        *((said, "10.0.0.1") for said in (b"192.0.2.1:999999", b"\xff\xfe", b"," * 60_000)),
    ],
)
def test_what_a_trusted_proxy_says(said: bytes, expected: str) -> None:
    """The service takes the rightmost address that is no proxy's; the client's part on the left counts for nothing."""
    assert address((b"x-forwarded-for", said)) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"for=192.0.2.1", "192.0.2.1"),
        (b'FOR="192.0.2.1:80";proto=http', "192.0.2.1"),
        (b'proto=http; for="[2001:db8::7]:4711" ;by=10.0.0.1', "2001:db8::7"),
        (b"for=6.6.6.6, for=192.0.2.1, for=10.2.2.2", "192.0.2.1"),
        (b'for="6.6.6.6, for=192.0.2.1', "192.0.2.1"),
        (b"for=unknown, for=10.2.2.2", "10.2.2.2"),
        *(
            (said, "10.0.0.1")
            for said in (b'for="_hidden"', b"proto=https", b"xfor=192.0.2.1", b'host="for=192.0.2.1"')
        ),
    ],
)
def test_what_a_trusted_proxy_says_by_the_standard(said: bytes, expected: str) -> None:
    assert address((b"forwarded", said)) == expected


def test_two_headers_that_differ_are_not_believed() -> None:
    """The client wrote one header, and a proxy that writes the other header forwarded it."""
    listed, standard = (b"x-forwarded-for", b"192.0.2.1"), (b"forwarded", b"for=192.0.2.1")
    assert address(listed, standard) == "192.0.2.1"
    assert address(listed, (b"forwarded", b"for=6.6.6.6")) == "10.0.0.1"
    assert address(listed, (b"forwarded", b"for=x")) == "10.0.0.1"
    assert address((b"x-forwarded-for", b"6.6.6.6"), listed) == "192.0.2.1", "lines of one header are one list"


@pytest.mark.parametrize("peer", ["192.0.2.9", "2001:db8::1", "11.0.0.1", None])
def test_nobody_else_is_believed(peer: str | None) -> None:
    said = (b"x-forwarded-for", b"192.0.2.1")
    assert address(said, peer=peer) == peer
    assert address(said, peer=peer, proxies=()) == peer
    assert address(said, peer="::ffff:10.0.0.1") == "192.0.2.1"
    assert address(said, peer=None, proxies=("unix",)) == "192.0.2.1"


def test_what_counts_as_one_client() -> None:
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") != network_of("192.0.2.2")
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::1") != network_of("2001:db8:1:2::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of(None) == "" == pseudonym("")
    assert "192.0.2.1" not in pseudonym("192.0.2.1") != pseudonym("192.0.2.2")


@pytest.mark.parametrize("proxies", ["10.0.0.1/8", "proxy.example", "10.0.0.0/8, unix, x"])
def test_proxies_are_networks(proxies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_TRUSTED_PROXIES", proxies)
    with pytest.raises(InvalidInput, match="PROTOSLICE_TRUSTED_PROXIES"):
        read_settings({})


def test_the_log_has_the_client_that_the_proxy_tells_of(serving: Any) -> None:
    lines = StringIO()
    with logs_to(lines, "json", "info") as flush:
        with serving(auth="open", trusted_proxies=("127.0.0.0/8",)) as live:
            assert exchange(live, PING[:-2] + b"x-forwarded-for: 192.0.2.77\r\n\r\n").status == 200
        flush()
    assert "192.0.2.77" in lines.getvalue()


def test_a_quick_start_pays_for_no_trickle(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the mean from the start, a megabyte sent at once would have allowed a quarter of an hour."""
    monkeypatch.setattr(request_body, "_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(request_body, "_WINDOW_SECONDS", 0.3)
    with serving(body_min_bytes_per_second=1000) as live, live.connect() as connection:
        connection.sendall(HANGING.replace(b"100000", b"9000000") + b"\r\n\x0a" + bytes(1 << 20))
        connection.settimeout(0.02)
        for _ in range(500):
            connection.sendall(b"\x00")
            try:
                if connection.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                continue
        connection.settimeout(5)
        answer = read_answer(connection)
    assert_problem(answer.status, answer.headers, answer.body, expected=408, slug="request-timeout")
    assert "1000 bytes" in json.loads(answer.body)["detail"]

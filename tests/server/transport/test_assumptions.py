"""Assumptions about internals of uvicorn and httptools, on which `server/transport` relies.

Another version is tested by putting it first on the path: `PYTHONPATH=folder python -m pytest` on this file.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import HANDLED_SIGNALS, Server, ServerState

App = Callable[[Any, Any, Any], Awaitable[None]]
HEAD = b"POST /a%20b?c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


class FakeTransport(asyncio.Transport):
    """A transport that keeps written data, and records whether reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.paused = False
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


async def connect(app: App) -> tuple[HttpToolsProtocol, FakeTransport]:
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="off")
    config.load()
    state, transport = ServerState(), FakeTransport()
    state.default_headers = [(b"standing", b"1")]
    protocol = HttpToolsProtocol(config, state, {})
    protocol.connection_made(transport)
    return protocol, transport


async def answer_empty(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"b", b"2"), (b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def never(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


async def settle(protocol: HttpToolsProtocol) -> None:
    await asyncio.gather(*protocol.tasks)


async def test_the_state_of_a_new_connection() -> None:
    protocol, transport = await connect(never)
    assert vars(protocol)["cycle"] is None
    assert protocol.connections == {protocol}
    assert isinstance(protocol.parser, HttpRequestParser)
    assert protocol.transport is transport
    assert protocol.timeout_keep_alive_task is None
    assert (protocol.flow.read_paused, protocol.flow.write_paused) == (False, False)
    assert protocol.server_state.total_requests == 0


async def test_a_scope_may_be_made_after_the_head_was_parsed() -> None:
    """`on_message_begin` makes scope and headers from the connection alone; both have the same headers."""
    protocol, _ = await connect(never)
    protocol.url, protocol.headers, protocol.expect_100_continue = b"/x", [(b"a", b"1")], True
    HttpToolsProtocol.on_message_begin(protocol)
    assert (protocol.url, protocol.headers, protocol.expect_100_continue) == (b"", [], False)
    assert protocol.scope["headers"] is protocol.headers


async def test_a_head_starts_a_request() -> None:
    protocol, _ = await connect(never)
    protocol.data_received(HEAD)
    assert protocol.headers == [(b"host", b"x"), (b"content-length", b"3")]
    scope = protocol.scope
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c")
    assert (protocol.cycle.response_complete, len(protocol.tasks)) == (False, 1)


async def test_an_answer_is_the_status_standing_headers_and_own_headers() -> None:
    protocol, transport = await connect(answer_empty)
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await settle(protocol)
    assert transport.written == STATUS_LINE[200] + b"standing: 1\r\nb: 2\r\ncontent-length: 2\r\n\r\nok"
    assert STATUS_LINE[206] == b"HTTP/1.1 206 Partial Content\r\n"
    assert STATUS_LINE[304].startswith(b"HTTP/1.1 304 ")


async def test_the_end_of_an_answer_is_counted_and_arms_the_timer() -> None:
    protocol, transport = await connect(answer_empty)
    protocol.flow.pause_reading()
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await settle(protocol)
    assert protocol.cycle.response_complete
    assert protocol.server_state.total_requests == 1
    assert not protocol.flow.read_paused
    assert protocol.timeout_keep_alive_task is not None
    protocol.timeout_keep_alive_handler()
    assert transport.closed
    protocol._unset_keepalive_if_required()
    assert protocol.timeout_keep_alive_task is None


async def test_a_body_that_has_no_taker_pauses_the_flow_and_receive_resumes_it() -> None:
    protocol, _ = await connect(never)
    protocol.data_received(HEAD.replace(b"3", b"999999"))
    protocol.data_received(bytes(HIGH_WATER_LIMIT + 1))
    assert protocol.flow.read_paused
    message = await protocol.cycle.receive()
    assert message["type"] == "http.request"
    assert len(message["body"]) == HIGH_WATER_LIMIT + 1
    assert not protocol.flow.read_paused


async def test_a_body_that_follows_its_answer_is_dropped() -> None:
    protocol, _ = await connect(answer_empty)
    protocol.data_received(HEAD)
    await settle(protocol)
    protocol.data_received(b"abc")
    assert not protocol.cycle.body


@pytest.mark.parametrize(
    ("head", "keeps"),
    [(b"HTTP/1.1\r\n\r\n", True), (b"HTTP/1.1\r\nconnection: close\r\n\r\n", False), (b"HTTP/1.0\r\n\r\n", False)],
)
async def test_a_connection_is_kept_or_closed_with_a_word(head: bytes, keeps: bool) -> None:
    protocol, transport = await connect(answer_empty)
    protocol.data_received(b"GET / " + head)
    assert protocol.cycle.keep_alive == keeps
    await settle(protocol)
    assert transport.closed == (not keeps)
    assert (b"connection: close\r\n" in transport.written) == (not keeps)


async def test_shutdown_closes_what_is_idle_and_lets_answers_end() -> None:
    idle, transport = await connect(never)
    idle.shutdown()
    assert transport.closed
    busy, transport = await connect(never)
    busy.data_received(HEAD)
    busy.shutdown()
    assert (transport.closed, busy.cycle.keep_alive) == (False, False)


async def test_a_lost_connection_tells_the_request() -> None:
    protocol, _ = await connect(never)
    protocol.data_received(HEAD)
    protocol.connection_lost(None)
    assert protocol.connections == set()
    assert (await protocol.cycle.receive())["type"] == "http.disconnect"


def test_methods_that_are_overridden_take_what_ours_take() -> None:
    wanted = {
        HttpToolsProtocol: {"on_url": 2, "on_header": 3, "on_body": 2, "on_headers_complete": 1, "pause_writing": 1,
            "on_message_complete": 1, "on_response_complete": 1, "resume_writing": 1, "send_400_response": 2},
        FlowControl: {"pause_reading": 1, "resume_reading": 1, "pause_writing": 1, "resume_writing": 1, "drain": 1},
        Server: {"startup": 2, "shutdown": 2, "handle_exit": 3, "capture_signals": 1},
    }  # fmt: skip
    for kind, methods in wanted.items():
        for name, count in methods.items():
            assert len(inspect.signature(getattr(kind, name)).parameters) == count, name


async def test_a_server_starts_on_given_sockets_and_ends_by_its_flags() -> None:
    server = Server(uvicorn.Config(never, log_config=None, ws="none", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server._serve([listener]))
        while not server.started:
            await asyncio.sleep(0)
        assert server.servers
        assert (server.should_exit, server.force_exit) == (False, False)
        assert not server.server_state.connections | server.server_state.tasks
        server.handle_exit(signal.SIGTERM, None)
        assert server.should_exit
        await serving
    server.handle_exit(signal.SIGINT, None)
    assert server.force_exit
    assert set(HANDLED_SIGNALS) >= {signal.SIGINT, signal.SIGTERM}


async def test_an_answer_takes_three_methods_of_its_transport() -> None:
    protocol, transport = await connect(answer_empty)
    protocol.data_received(HEAD.replace(b"1.1", b"1.0").replace(b"Host: x", b"Expect: 100-continue"))
    own = SimpleNamespace(write=transport.write, close=transport.close, is_closing=transport.is_closing)
    vars(protocol.cycle)["transport"] = own
    await settle(protocol)
    assert transport.written.startswith(STATUS_LINE[200])
    assert transport.closed


class Told:
    """The callbacks of a parser, recorded in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.told.append((name, value))

    def on_headers_complete(self) -> None:
        self.told.append("head")

    def on_body(self, body: bytes) -> None:
        self.told.append(body)

    def on_message_complete(self) -> None:
        self.told.append("end")


def test_an_offer_of_another_protocol_ends_the_message_before_its_body() -> None:
    told = Told()
    parser = HttpRequestParser(told)
    head = b"POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\ncontent-length: 3\r\n\r\n"
    with pytest.raises(HttpParserUpgrade) as offer:
        parser.feed_data(head + b"abc")
    assert offer.value.args[0] == len(head)
    assert parser.should_upgrade()
    assert told.told[-2:] == ["head", "end"]
    renamed = Told()
    parser = HttpRequestParser(renamed)
    parser.feed_data(head.replace(b"\nupgrade:", b"\nx-declined-upgrade:") + b"abc")
    assert not parser.should_upgrade()
    assert renamed.told[-3:] == ["head", b"abc", "end"]


def test_connect_ends_the_message_before_its_body() -> None:
    told = Told()
    parser = HttpRequestParser(told)
    with pytest.raises(HttpParserUpgrade):
        parser.feed_data(b"CONNECT /a HTTP/1.1\r\ncontent-length: 3\r\n\r\n")
    assert parser.should_upgrade()
    assert told.told[-2:] == ["head", "end"]


def test_trailers_are_told_as_headers_after_the_body() -> None:
    told = Told()
    parser = HttpRequestParser(told)
    parser.feed_data(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n")
    assert told.told == [(b"transfer-encoding", b"chunked"), "head", b"a", (b"x", b"y"), "end"]
    assert (parser.get_method(), parser.get_http_version()) == (b"POST", "1.1")


@pytest.mark.parametrize("length", [b"x", b"-1", b"1, 1", b"1\r\ncontent-length: 2"])
def test_a_content_length_is_one_number(length: bytes) -> None:
    with pytest.raises(HttpParserError):
        HttpRequestParser(Told()).feed_data(b"POST / HTTP/1.1\r\ncontent-length: " + length + b"\r\n\r\n")

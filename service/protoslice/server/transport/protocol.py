"""uvicorn's HTTP protocol, with further limits: on slow and long heads, pipelining, and clients that do not read.

The parser gets one complete head or one piece of a body per callback. The parser gets a head only after the previous
request was answered and the client received the answer. While many bytes are unparsed, the connection is not read. A
client that sends more then fills its own machine's buffers. Requests that are refused here never reach the application.
The answers are problems, and are recorded.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final, cast

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from protoslice.errors import ClientLimit
from protoslice.server.context import RequestContext
from protoslice.server.http.headers import Headers, header_lines
from protoslice.server.http.security import secured
from protoslice.server.problems import (
    BAD_REQUEST,
    BUSY,
    FOR_NOW,
    HEADERS,
    MEDIA_TYPE,
    RETRY_AFTER_SECONDS,
    SHARE,
    TIMEOUT,
    Problem,
)
from protoslice.server.request.clients import Clients, network_of
from protoslice.server.request.middleware import OPERATING
from protoslice.server.settings import Settings

Answerer = Callable[[bytes, Headers, str | None, Headers], bytes | None]
"""A function that answers a GET while it is parsed. It returns the complete response, or None to decline the request.

Its arguments are the target, the headers, the peer's address, and the headers of every response.
"""
Record = Callable[[RequestContext], None]
HEAD_BYTES: Final = 64 << 10
"""The longest head of a request in bytes: its request line and headers, with line ends."""
HEAD_SECONDS: Final = 15
SEND_SECONDS: Final = 30
"""The seconds between two checks of the speed of a client that reads slowly."""
SEND_BYTES_PER_SECOND: Final = 1024
"""The minimum speed at which a client has to read a response."""
KEPT_BYTES: Final = 16 << 10
"""The number of unparsed bytes above which reading stops. One read of the event loop may add up to 256 kB."""
UNSENT_AT_FIRST: Final = 128 << 10
"""The limit on unsent bytes that the kernel holds for a client that has not read anything yet.

The kernel's default is 2.5 MB on a loopback. Bytes in transit do not count, so the limit does not slow distant clients.
"""
UNSENT_PROVEN: Final = 1 << 20
"""The same limit as `UNSENT_AT_FIRST`, for a client that has read.

With less, the event loop would wake more often than pieces are read.
"""
RESERVE: Final = 32
"""The number of connections beyond a limit that stay open until their head arrives.

Only a head for an operating route, such as `/livez`, is then answered.
"""
FRAMING: Final = 32
"""The number of bytes in chunk heads and extensions that is allowed per byte of a body.

Trailers get no such allowance.
"""
LINGER_BYTES: Final = 32 << 20
"""The number of bytes after the last answer that are read and dropped before the connection is reset."""
LINGER_SECONDS: Final = 5.0
DROPPED_BYTES: Final = 64 << 10
"""The longest body that is read and dropped after an early answer. With a longer body, the connection is closed."""
_VERSIONS: Final = frozenset({"1.0", "1.1"})
"""The versions of HTTP that are answered. The parser also accepts 0.9 and 2.0, and refuses all others."""
_HEAD_END: Final = b"\r\n\r\n"
_CUT: Final = (b"\r\n\r", b"\r\n", b"\r")
"""The beginnings of the end of a head, longest first. A piece of a body may end with one of these beginnings."""
_BARE_LF: Final = re.compile(rb"[^\r]\n")
_UPGRADE: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class HttpProtocol(HttpToolsProtocol):
    """A connection with limits, in bytes and time, on heads, framing and unread responses."""

    def __init__(
        self,
        *args: Any,
        settings: Settings,
        clients: Clients,
        answer: Answerer | None,
        record: Record | None,
        waiting: dict[HttpProtocol, None],
        reserve: dict[HttpProtocol, None],
        **options: Any,
    ) -> None:
        """Share `waiting` and `reserve` with all connections of a server.

        `waiting` has connections within the limits that have not sent a complete head. `reserve` has connections beyond
        a limit. `waiting` and `reserve` begin with the oldest connection.
        """
        super().__init__(*args, **options)
        self._settings = settings
        self._clients = clients
        self._answer = answer
        self._record = record
        self._waiting = waiting
        self._reserve = reserve
        self._data = b""
        self._at = 0
        self._searched = 0
        """The number of unparsed bytes that are known to contain no complete head."""
        self._paused = False
        self._scheduled = False
        """True if the connection will continue to parse in the next round of the event loop."""
        self._in_head = True
        self._body_left = 0
        """The number of bytes of the body that are still missing, according to Content-Length; 0 for a chunked body."""
        self._framing = 0
        self._keeps = True
        """True if the connection is kept after the current request."""
        self._key: str | None = None
        """The client's key under which the connection is counted; None if it is not counted."""
        self._over: tuple[Problem, str] | None = None
        """The problem and message of the limit that is exceeded. The connection then gets only operating routes."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._reads = False
        """True once the client has received everything that was sent."""
        self._dropped = 0

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self.flow = _ParserFlowControl(transport, self._schedule)
        self._limit_unsent(UNSENT_AT_FIRST)
        self._over = self._limit_reached()
        if self._over is None:
            self._waiting[self] = None
        elif len(self._reserve) < RESERVE or _make_room(self._reserve):
            self._reserve[self] = None
        else:
            self._refuse(*self._over, lingers=False)
            return
        self._await_head()

    def _limit_reached(self) -> tuple[Problem, str] | None:
        """Return the problem if the connection exceeds a limit.

        If the service is full, try to close an idle connection first.
        """
        peer = self.client[0] if self.client else None
        if not self._clients.is_proxy(peer):
            key = network_of(peer)
            try:
                self._clients.connections.take(key)
            except ClientLimit as error:
                return SHARE, error.message
            self._key = key
        limit = self._settings.max_connections
        if len(self.connections) - len(self._reserve) > limit and not _make_room(self._waiting):
            return BUSY, f"Too many connections: the limit is {limit}"
        return None

    def may_give_way(self) -> bool:
        """Return True if no request is running, and if no response is still being sent to the client."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.get_write_buffer_size()

    def give_way(self) -> None:
        """Close the connection in favour of another connection."""
        if self._linger_timer is not None:
            self.transport.abort()
        elif self._at < len(self._data):
            self._refuse(BUSY, "Too many connections, and this one had waited longest", lingers=False)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and release the connection's share."""
        self._data, self._at = b"", 0
        self._waiting.pop(self, None)
        self._reserve.pop(self, None)
        for timer in (self._head_timer, self._send_timer, self._linger_timer):
            _cancel(timer)
        self._unset_keepalive_if_required()
        if self._key is not None:
            self._clients.connections.give(self._key)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection after the running request is answered."""
        self._keeps = False
        super().shutdown()

    # Pacing

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes if it is their turn. Drop the bytes if the connection is about to be closed."""
        if self._linger_timer is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0
        if self._scheduled:
            self._set_reading()
        else:
            self._parse_buffered()

    def _parse_buffered(self) -> None:
        """Parse at most one head and one piece of a body, so that other connections have their turn."""
        self._scheduled = False
        start, flow = self._at, self.flow
        if self._in_head and start < len(self._data) and not (flow.write_paused or self._is_busy()):
            self._parse_head()
        if not self._in_head and self._at < len(self._data) and not (flow.read_paused or self.transport.is_closing()):
            self._parse_body()
        if self._at < len(self._data):
            if self._at > start:
                self._schedule()
            self._set_reading()
        elif self._paused or flow.read_paused:
            self._set_reading()

    def _is_busy(self) -> bool:
        """Return True if the next head has to wait for the previous response, or if it will not be read at all."""
        return (self.cycle is not None and not self.cycle.response_complete) or self.transport.is_closing()

    def _schedule(self) -> None:
        """Continue to parse in the next round of the event loop, if bytes are unparsed or reading is paused."""
        if not self._scheduled and (self._paused or self._at < len(self._data)):
            self._scheduled = True
            self.loop.call_soon(self._parse_buffered)

    def _set_reading(self) -> None:
        """Pause or resume reading. While few bytes are unparsed, reading continues, so that a disconnect is noticed.

        Reading also continues for the rest of a head, whose length `_parse_head` limits.
        """
        if self.transport.is_closing() or self._linger_timer is not None:
            return
        waits = self._scheduled or not self._in_head or self._is_busy() or self.flow.write_paused
        paused = (waits and len(self._data) - self._at > KEPT_BYTES) or (self.flow.read_paused and not self._in_head)
        if paused != self._paused:
            self._paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def _parse_head(self) -> None:
        """Parse the next head once it is complete. Refuse a head that is too long or malformed."""
        if self._data[self._at] in b"\r\n":  # empty lines before a request are ignored, and do not count
            self._at = len(self._data) - len(self._data[self._at :].lstrip(b"\r\n"))
        data, start, limit = self._data, self._at, HEAD_BYTES
        if start == len(data):
            return
        end = data.find(_HEAD_END, start + max(0, self._searched - len(_HEAD_END))) + len(_HEAD_END)
        length = (end if end >= len(_HEAD_END) else len(data)) - start
        if length > limit:
            self._refuse(HEADERS, f"The request line and the headers may have at most {limit} bytes")
        elif end >= len(_HEAD_END):
            self._unset_keepalive_if_required()
            _cancel(self._head_timer)
            self._head_timer = None
            self._at, self._searched = end, 0
            head = data if length == len(data) else data[start:end]
            # The parser would drop the body after an offer to change the protocol, so the offer is hidden from the
            # parser. The connection stays on HTTP/1.1.
            self._feed(_UPGRADE.sub(b"\r\nx-declined-upgrade:", head) if b"upgrade" in head.lower() else head)
        elif not data[start : start + 1].isupper() or _BARE_LF.search(data, start + max(0, self._searched - 1)):
            self._refuse(BAD_REQUEST, "Invalid HTTP request")
        else:
            self._searched = length
            if self._head_timer is None:
                self._unset_keepalive_if_required()
                self._await_head()

    def _parse_body(self) -> None:
        """Parse a piece of the body. A piece of a chunked body ends at a blank line, where the body may end."""
        data, start = self._data, self._at
        if self._body_left:
            end = min(start + self._body_left, len(data))
            self._body_left -= end - start
        elif (found := data.find(_HEAD_END, start)) >= 0:
            end = found + len(_HEAD_END)
        else:  # a partial blank line is left for the next piece
            end = max(start, len(data) - next((len(cut) for cut in _CUT if data.endswith(cut)), 0))
        self._at = end
        if end > start:
            self._framing += end - start
            self._feed(data if end - start == len(data) else data[start:end])
            if self._framing > HEAD_BYTES:
                self.transport.abort()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # CONNECT: the connection ends after its answer
        except HttpParserError:
            self._refuse_unparsed()

    def _refuse_unparsed(self) -> None:
        """Refuse bytes that are not HTTP, and end the request to which they belong."""
        cycle = None if self._in_head else self.cycle
        if cycle is None or not cycle.response_started:
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
            self._refuse(BAD_REQUEST, "Invalid HTTP request")
        elif cycle.response_complete:
            self._close()
        else:
            self.transport.abort()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """Start a request. The request's scope is made later, and only if the request is not answered at once."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the request. Trailers, which follow the body, are dropped."""
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Answer, refuse or start the request."""
        self._in_head = False
        self._framing = 0
        self._waiting.pop(self, None)
        if self._over is not None and self.url.partition(b"?")[0].decode("latin-1") not in OPERATING:
            self._refuse(*self._over, lingers=False)
        elif self._answer_at_once():
            self.on_response_complete()
        elif self.parser.get_http_version() not in _VERSIONS:
            self._refuse(BAD_REQUEST, "Use HTTP/1.1 or HTTP/1.0")
        else:
            self._make_scope()
            super().on_headers_complete()
            self._expect_body()

    def _answer_at_once(self) -> bool:
        """Answer the request without a task, if it is simple enough. Return True if it was answered."""
        parser = self.parser
        if self._answer is None or parser.get_method() != b"GET" or parser.get_http_version() != "1.1":
            return False
        if not parser.should_keep_alive():
            return False
        client = self.client[0] if self.client else None
        answer = self._answer(self.url, self.headers, client, self.server_state.default_headers)
        if answer is None:
            return False
        self.transport.write(answer)
        return True

    def _make_scope(self) -> None:
        """Make uvicorn's scope, which uvicorn itself makes at the beginning of every message."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers if url.startswith((b"/", b"*")) else _with_host_of(url, headers)

    def _expect_body(self) -> None:
        """Record how the body is framed. An answer before the end of a long body closes the connection."""
        if self._over is not None or self.parser.should_upgrade():
            self.cycle.keep_alive = False
        self._keeps = self.cycle.keep_alive
        lengths = [int(value) for name, value in self.headers if name == b"content-length"]
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        self._body_left = sum(lengths)  # at most one length, because the parser refuses two
        if chunked or self._body_left:
            own = SimpleNamespace(write=self.transport.write, is_closing=self.transport.is_closing, close=self._close)
            self.cycle.transport = cast("asyncio.Transport", own)
            if chunked or self._body_left > DROPPED_BYTES:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Receive a piece of the body. The number of small chunks is limited."""
        self._framing = max(0, self._framing - FRAMING * len(body))
        if self.cycle is not None:  # otherwise, the head was refused
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect a head next."""
        self._in_head = True
        if self.cycle is not None:
            if not self.cycle.response_started:
                self.cycle.keep_alive = self._keeps
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        if self._over is None and not self.transport.is_closing():
            self._waiting[self] = None
        super().on_response_complete()
        self._schedule()

    # Slow clients

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._at < len(self._data):
            self._refuse(TIMEOUT, f"The headers did not arrive within {HEAD_SECONDS:g} seconds")
        else:
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, unless a response is still being sent to a slow client."""
        if not self.transport.get_write_buffer_size():
            super().timeout_keep_alive_handler()
            return
        if self._send_timer is None:
            self._watch_sending()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        """Start to watch the speed at which a slow client reads."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """Stop watching a client that has caught up."""
        _cancel(self._send_timer)
        self._send_timer = None
        if not self._reads:
            self._reads = True
            self._limit_unsent(UNSENT_PROVEN)
        super().resume_writing()

    def _limit_unsent(self, size: int) -> None:
        connection: socket.socket | None = self.transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            with suppress(OSError):  # the client may have disconnected
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)

    def _watch_sending(self) -> None:
        _cancel(self._send_timer)
        self._unsent = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(SEND_SECONDS, self._check_sending)

    def _check_sending(self) -> None:
        """Close the connection unless the client has read enough since the last check."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._send_timer = None
            return
        due = max(1, int(SEND_BYTES_PER_SECOND * SEND_SECONDS))
        if self._unsent - unsent < min(due, self._unsent):
            self.logger.warning("closed the connection, because the client is too slow", extra={"client": self.client})
            self.transport.abort()
            return
        self._watch_sending()

    # Refusals, and the end of a connection

    def _refuse(self, problem: Problem, detail: str, *, lingers: bool = True) -> None:
        """Answer with a problem, and close the connection. With `lingers`, let the client read the answer first."""
        if self.transport.is_closing() or self._linger_timer is not None:
            return
        context = RequestContext(client=self.client[0] if self.client else None)
        response = _refusal(problem, detail, context.id, self.server_state.default_headers, self._settings.public_path)
        self.transport.write(response)
        if self._record is not None:
            context.route, context.status, context.bytes_out = "unparsed", problem.status, len(response)
            context.problem, context.reason = problem.slug, detail
            self._record(context)
        if lingers:
            self._linger()
        else:
            self.transport.close()

    def _close(self) -> None:
        """Close the connection after a response. A client that still sends its body can read the response first."""
        if self._in_head or self.transport.is_closing():
            self.transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """Send nothing more, and drop received bytes until the client disconnects.

        The kernel answers unread bytes with a reset. A client that writes before it reads would then lose the response.
        """
        self._data, self._at = b"", 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        _cancel(self._head_timer)
        self._linger_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        with suppress(OSError, RuntimeError, NotImplementedError):  # the client may have disconnected
            self.transport.write_eof()


class _ParserFlowControl(FlowControl):
    """The flow control of the parser. It records the application's wishes, which the connection carries out."""

    def __init__(self, transport: asyncio.Transport, schedule: Callable[[], None]) -> None:
        super().__init__(transport)
        self._schedule = schedule

    def pause_reading(self) -> None:
        """Stop parsing."""
        self.read_paused = True

    def resume_reading(self) -> None:
        """Continue to parse."""
        if self.read_paused:
            self.read_paused = False
            self._schedule()

    def resume_writing(self) -> None:
        """Parse the next request, because the client has read the sent bytes."""
        super().resume_writing()
        self._schedule()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _make_room(connections: dict[HttpProtocol, None]) -> bool:
    """Close the first connection that only waits. Return False if no connection only waits."""
    found = next((each for each in connections if each.may_give_way()), None)
    if found is not None:
        del connections[found]
        found.give_way()
    return found is not None


def _with_host_of(url: bytes, headers: Headers) -> Headers:
    """Return headers with the host of an absolute target, which overrides Host (RFC 9112, section 3.2.2)."""
    host = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].rpartition(b"@")[2]
    return [(name, host if name == b"host" else value) for name, value in headers]


def _refusal(problem: Problem, detail: str, request_id: bytes, defaults: Headers, base: str) -> bytes:
    """Return a response that has a problem and closes the connection. `defaults` are headers of every response.

    Clients reach the service's pages below the path `base`.
    """
    members = {"type": problem.type_below(base), "title": problem.title, "status": problem.status, "detail": detail}
    body = json.dumps(members | {"request_id": request_id.decode()}).encode()
    headers = [
        *defaults,
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        (b"x-request-id", request_id),
    ]
    if problem.status in FOR_NOW:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return b"".join((STATUS_LINE[problem.status], header_lines(secured(headers, private=False)), b"\r\n", body))

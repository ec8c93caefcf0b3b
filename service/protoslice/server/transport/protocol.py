"""uvicorn's HTTP protocol with the limits it lacks: slow and long headers, clients that do not read.

What is refused here never reaches the application; the answers are problems, and are recorded, all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from protoslice.concurrency.shares import Shares
from protoslice.errors import ClientLimit
from protoslice.server.context import RequestContext
from protoslice.server.http.headers import Headers
from protoslice.server.problems import BAD_REQUEST, BUSY, HEADERS, SHARE, TIMEOUT, Problem
from protoslice.server.request.clients import Clients, network_of
from protoslice.server.request.middleware import OPERATING
from protoslice.server.transport.lingering import DROPPED_BYTES, Linger, LingeringTransport
from protoslice.server.transport.pacing import HEAD_PIECES, PacedProtocol, RoundRobin
from protoslice.server.transport.refusals import refusal
from protoslice.server.transport.unsent import AT_FIRST, PROVEN, limit_unsent

Answerer = Callable[[bytes, Headers, str | None, Headers], bytes | None]
"""Answers a GET during parsing, with the complete response, or None to leave it to the ordinary way.

Arguments: target, headers, address of the peer, and headers of every response.
"""
Record = Callable[[RequestContext], None]
_VERSIONS: Final = frozenset({"1.0", "1.1"})
"""Versions of HTTP that are answered; the parser takes 0.9 and 2.0 as well, and refuses any others."""
RESERVE: Final = 32
"""Connections beyond a limit that are kept open until their head shows whether they ask for an operating route."""
FRAMING: Final = 32
"""Bytes of chunk heads and extensions that one byte of a body pays for; no byte pays for trailers."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection."""

    header_timeout_seconds: float = 15
    max_header_bytes: int = 64 << 10
    max_connections: int = 4096
    clients: Clients | None = None
    """Counts the connections of each client; None counts none."""
    send_timeout_seconds: float = 30
    send_min_bytes_per_second: int = 1024
    public_path: str = ""
    """Path below which clients reach the service, for URLs in refusals."""


class GuardedProtocol(PacedProtocol):
    """Connection whose heads, framing and unread answers are bounded in bytes and time."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    answerer: ClassVar[Answerer | None] = None
    record: ClassVar[Record | None] = None
    waiting: ClassVar[dict[GuardedProtocol, None]] = {}
    """Connections within the limits that have sent no whole head, the one that has waited longest first."""
    reserve: ClassVar[dict[GuardedProtocol, None]] = {}
    """Connections beyond a limit, the oldest first."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._counted: tuple[Shares, str] | None = None
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._active = 0.0
        self._keeps = True
        self._answered = False
        self._framing = 0
        self._linger: Linger | None = None
        self._reads = False
        """True once the client has caught up with what was sent."""
        self._over: tuple[Problem, str] | None = None
        """The limit that the connection is beyond: it gets operating routes only."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        limit_unsent(transport, AT_FIRST)
        self._over = self._limit_reached()
        if self._over is None:
            self.waiting[self] = None
        elif len(self.reserve) < RESERVE or _make_room(self.reserve):
            self.reserve[self] = None
        else:
            self._refuse(*self._over, lingers=False)
            return
        self._await_head()

    def _limit_reached(self) -> tuple[Problem, str] | None:
        """The problem of a connection beyond a limit; a full service first closes a connection that only waits."""
        try:
            self._count()
        except ClientLimit as error:
            return SHARE, error.message
        limit = self.limits.max_connections
        if len(self.connections) - len(self.reserve) > limit and not _make_room(self.waiting):
            return BUSY, f"Too many connections: the limit is {limit}"
        return None

    def may_give_way(self) -> bool:
        """True while no request is under way, and no answer on its way to the client."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.get_write_buffer_size()

    def give_way(self) -> None:
        """Close the connection so that another one has its place."""
        if self._linger is not None:
            self.transport.abort()
        elif self._head_bytes:
            self._refuse(BUSY, "Too many connections, and this one had waited longest", lingers=False)
        else:
            self.transport.close()

    def _count(self) -> None:
        """Count the connection for its client, unless a trusted proxy; `ClientLimit` beyond its share."""
        clients, peer = self.limits.clients, self.client[0] if self.client else None
        if clients is not None and not clients.is_proxy(peer):
            key = network_of(peer)
            clients.connections.take(key)
            self._counted = clients.connections, key

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and give the place back."""
        self.waiting.pop(self, None)
        self.reserve.pop(self, None)
        self._forget(self._head_timer)
        self._forget(self._send_timer)
        if self._linger is not None:
            self._linger.end()
        self._unset_keepalive_if_required()
        if self._counted is not None:
            shares, key = self._counted
            shares.give(key)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come; drop it on a connection that is to be closed."""
        if self._linger is not None:
            self._linger.drop(len(data))
        else:
            super().data_received(data)

    def feed(self, piece: bytes) -> None:
        """Feed the parser, as long as the head keeps within its length."""
        if not self._in_head:
            self._framing += len(piece)
            self.parse(piece)
            if self._framing > self.limits.max_header_bytes:
                self.transport.abort()
            return
        self._head_bytes += len(piece)
        self.parse(piece)
        if self._in_head and self._head_bytes:
            if self._head_bytes > self.limits.max_header_bytes:
                self._refuse_head()
            elif self._head_timer is None:
                self._await_head()

    def on_message_begin(self) -> None:
        """Start anew; the scope is only made for what is not answered at once."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def _make_scope(self) -> None:
        """Make uvicorn's scope, as it does at the beginning of every message."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers if url.startswith((b"/", b"*")) else _asked_by_target(url, headers)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the request; trailers, which come behind the body, are dropped."""
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, which may have been framed in so many small chunks and no more."""
        self._framing = max(0, self._framing - FRAMING * len(body))
        if self.cycle is not None:  # the head was not refused
            super().on_body(body)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._in_head = False
        self._body_left = None
        self._framing = 0
        self._pieces += HEAD_PIECES
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if self._head_bytes > self.limits.max_header_bytes and self._head_length() > self.limits.max_header_bytes:
            self._refuse_head()
            return
        self.waiting.pop(self, None)
        if self._over is not None and self.url.partition(b"?")[0].decode("latin-1") not in OPERATING:
            self._refuse(*self._over, lingers=False)
            return
        if self._answer_at_once():
            return
        if self.parser.get_http_version() not in _VERSIONS:
            self._refuse(BAD_REQUEST, "Use HTTP/1.1 or HTTP/1.0")
            return
        self._unset_keepalive_if_required()
        self._make_scope()
        super().on_headers_complete()
        if self._over is not None:
            self.cycle.keep_alive = False
        self._keeps = self.cycle.keep_alive
        framing = self.body_due()
        if framing:
            self.cycle.transport = cast("asyncio.Transport", LingeringTransport(self.transport, self._close))
            if not _is_short(framing):
                self.cycle.keep_alive = False  # an answer before the end of the body says that the connection ends

    def _answer_at_once(self) -> bool:
        """True if the request was simple enough to be answered without a task of its own."""
        answerer = type(self).answerer
        if answerer is None or self.parser.get_method() != b"GET" or self.parser.get_http_version() != "1.1":
            return False
        if not self.parser.should_keep_alive():
            return False
        client = self.client[0] if self.client else None
        answer = answerer(self.url, self.headers, client, self.server_state.default_headers)
        if answer is None:
            return False
        self.transport.write(answer)
        self._answered = True
        return True

    def on_message_complete(self) -> None:
        """The next bytes are a head again."""
        if not self._answered and self.parser.should_upgrade() and self.body_due():
            return
        self._in_head = True
        self._head_bytes = 0
        if self._answered:
            self._answered = False
            self._answered_at_once()
        elif self.cycle is not None:
            if not self.cycle.response_started:
                self.cycle.keep_alive = self._keeps
            super().on_message_complete()

    def shutdown(self) -> None:
        """Close the connection once the request under way is answered."""
        self._keeps = False
        super().shutdown()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        if self._over is None and not self.transport.is_closing():
            self.waiting[self] = None
        super().on_response_complete()

    def _answered_at_once(self) -> None:
        """Wait for the next request."""
        self.waiting[self] = None
        self.server_state.total_requests += 1
        self._active = self.loop.time()
        # A running timer is kept: setting it anew costs a twentieth of a small answer.
        if self.timeout_keep_alive_task is None:
            self._wait_idle(self.timeout_keep_alive)

    def _wait_idle(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle; not while an answer is still on its way to a slow client."""
        self.timeout_keep_alive_task = None
        if self._in_head and self._head_bytes:
            if self._head_timer is None:  # the time ran out during the request before
                self._await_head()
            return
        left = self._active + self.timeout_keep_alive - self.loop.time()
        if self.transport.get_write_buffer_size():
            if self._send_timer is None:
                self._watch_sending()
            self._wait_idle(self.timeout_keep_alive)
        elif left > 0:
            self._wait_idle(left)
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        """The client does not keep up: look again in a while."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._forget(self._send_timer)
        self._send_timer = None
        if not self._reads:
            self._reads = True
            limit_unsent(self.transport, PROVEN)
        super().resume_writing()

    def _watch_sending(self) -> None:
        self._forget(self._send_timer)
        self._unsent = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(self.limits.send_timeout_seconds, self._look)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that do not parse as HTTP with a problem, and end the request that they belong to."""
        cycle = None if self._in_head else self.cycle
        if cycle is None or not cycle.response_started:
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
            self._refuse(BAD_REQUEST, msg)
        elif cycle.response_complete:
            self._close()
        else:
            self.transport.abort()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.header_timeout_seconds, self._head_is_late)

    def _head_length(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_head(self) -> None:
        self._refuse(HEADERS, f"The limit is {self.limits.max_header_bytes} bytes")

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self._in_head or (self.cycle is not None and not self.cycle.response_complete):
            return
        if self._head_bytes:
            self._refuse(TIMEOUT, f"The headers did not arrive within {self.limits.header_timeout_seconds:g} seconds")
        else:
            self.transport.close()

    def _look(self) -> None:
        """Drop the client unless it has taken enough since the last look."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._send_timer = None
            return
        due = max(1, int(self.limits.send_min_bytes_per_second * self.limits.send_timeout_seconds))
        if self._unsent - unsent < min(due, self._unsent):
            self.logger.warning("client too slow, connection closed", extra={"client": self.client})
            self.transport.abort()
            return
        self._unsent = unsent
        self._send_timer = self.loop.call_later(self.limits.send_timeout_seconds, self._look)

    def _refuse(self, problem: Problem, detail: str, *, lingers: bool = True) -> None:
        """Answer with a problem and close; a connection beyond a limit holds no place by lingering."""
        if self.transport.is_closing() or self._linger is not None:
            return
        context = RequestContext(client=self.client[0] if self.client else None)
        answer = refusal(problem, detail, context.id, self.server_state.default_headers, self.limits.public_path)
        self.transport.write(answer)
        record = type(self).record
        if record is not None:
            context.route, context.status, context.bytes_out = "unparsed", problem.status, len(answer)
            context.problem, context.reason = problem.slug, detail
            record(context)
        if lingers:
            self._read_no_more()
        else:
            self.transport.close()

    def _close(self) -> None:
        """Close the connection behind an answer; a client that still sends its body gets to see the answer."""
        if self._in_head or self.transport.is_closing():
            self.transport.close()
        else:
            self._read_no_more()

    def _read_no_more(self) -> None:
        self._data, self._at = b"", 0
        if self._held:
            self._held = False
            self.transport.resume_reading()
        self._forget(self._head_timer)
        self._linger = Linger(self.transport, self.loop)

    @staticmethod
    def _forget(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _make_room(connections: dict[GuardedProtocol, None]) -> bool:
    """Close the first connection that only waits; False if there is none."""
    found = next((each for each in connections if each.may_give_way()), None)
    if found is not None:
        del connections[found]
        found.give_way()
    return found is not None


def _is_short(framing: Headers) -> bool:
    """Return True if a body is known to be short enough to be dropped on a connection that is kept."""
    return all(name == b"content-length" and int(value) <= DROPPED_BYTES for name, value in framing)


def _asked_by_target(url: bytes, headers: Headers) -> Headers:
    """Headers with the host of an absolute target, which overrides Host (RFC 9112, section 3.2.2)."""
    host = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].rpartition(b"@")[2]
    return [(name, host if name == b"host" else value) for name, value in headers]


def guarded(
    limits: ConnectionLimits, answerer: Answerer | None = None, record: Record | None = None
) -> type[GuardedProtocol]:
    """Return the protocol class with these limits.

    `answerer` may answer simple requests at once; `record` is called for each request that is refused here.
    """
    # Static methods: looked up on the class, a plain function would be bound to the connection.
    own: dict[str, Any] = {
        "limits": limits,
        "answerer": None if answerer is None else staticmethod(answerer),
        "record": None if record is None else staticmethod(record),
        "scheduler": RoundRobin(),
        "waiting": {},
        "reserve": {},
    }
    return type("GuardedProtocol", (GuardedProtocol,), own)

"""Paced HTTP protocol for uvicorn: the parser is fed one head at a time, when its turn comes.

A request under way, a body that nobody takes and an answer that the client does not read all stop the parser. Bytes
that lie unparsed stop the reading, so a client that sends on fills its own machine's buffers. Requests sent one behind
the other queue up with those of all other connections, so a client that sends one at a time is answered in between.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from protoslice.server.http.headers import Headers

KEPT_BYTES: Final = 16 << 10
"""Unparsed bytes above which reading stops; up to one read of the loop (256 kB) comes on top."""
PIECES: Final = 256
"""The most pieces that one callback shows the parser before other connections have their turn."""
HEAD_PIECES: Final = 16
"""Pieces that one head counts for, since a whole answer may follow from it."""
CONNECTIONS_PER_ROUND: Final = 8
"""Connections that are parsed in one round of the loop."""
ALONE: Final = 8 << 10
"""A head that comes with more bytes than that has hardly come alone, and waits for its turn."""
_HEAD_END: Final = b"\r\n\r\n"
_CUT: Final = (b"\r\n\r", b"\r\n", b"\r")
"""Beginnings of the end of a head, longest first, for a piece that ends inside it."""


class RoundRobin:
    """Connections with more requests to parse, in turn, some in each round of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def schedule(self, loop: asyncio.AbstractEventLoop, take: Callable[[], None]) -> None:
        """Have `take` called when it is its turn, after this callback at the earliest."""
        if not self._waiting:
            loop.call_soon(self._run_round, loop)
        self._waiting.append(take)

    def _run_round(self, loop: asyncio.AbstractEventLoop) -> None:
        due = [self._waiting.popleft() for _ in range(min(CONNECTIONS_PER_ROUND, len(self._waiting)))]
        if self._waiting:
            loop.call_soon(self._run_round, loop)
        for take in due:
            take()


class PacedProtocol(HttpToolsProtocol):
    """One connection, parsed at the pace of its answers."""

    scheduler: ClassVar[RoundRobin] = RoundRobin()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._data = b""
        self._at = 0
        self._pieces = 0
        self._held = False
        self._waits = False
        """True once the connection has asked for its turn."""
        self._in_head = True
        self._body_left: int | None = None
        """Bytes of the body still to come, by Content-Length; None without one, or before it was read."""

    @abstractmethod
    def feed(self, piece: bytes) -> None:
        """Parse a piece: at most one head ends in it, and then with it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch what the application wants of the flow."""
        super().connection_made(transport)
        self.flow = _ParserFlowControl(transport, self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was not parsed."""
        self._data, self._at = b"", 0
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come as far as it is its turn."""
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0
        if self._in_head and len(data) > ALONE:
            self._go_on()
        if self._waits:
            self._set_reading()
        else:
            self._take()

    def on_response_complete(self) -> None:
        """Parse what came behind the request."""
        super().on_response_complete()
        self._go_on()

    def _take(self) -> None:
        self._pieces = 0
        size = len(self._data)
        while self._at < size and not self._must_wait():
            if self._pieces >= PIECES:
                self._go_on()
                break
            self._pieces += 1
            piece = self._next_piece()
            if not piece:
                break
            self.feed(piece)
        if self._at < size or self._held or self.flow.read_paused:
            self._set_reading()

    def _must_wait(self) -> bool:
        """True if the next head or piece of a body has no taker yet."""
        flow = self.flow
        if self._in_head:
            under_way = self.cycle is not None and not self.cycle.response_complete
            return flow.write_paused or under_way or self.transport.is_closing()
        return flow.read_paused or self.transport.is_closing()

    def _next_piece(self) -> bytes:
        """Bytes up to the end of the next head; of a body with a Content-Length, at most those left of it.

        A possible beginning of that end is held back, so that the end of a head is always the end of a piece.
        """
        data, start = self._data, self._at
        left = None if self._in_head else self._left_of_body()
        if not left:
            found = data.find(_HEAD_END, start)
            end = found + len(_HEAD_END) if found >= 0 else max(start, len(data) - _begun(data))
        else:
            end = min(start + left, len(data))
            self._body_left = left - (end - start)
        self._at = end
        return data if end - start == len(data) else data[start:end]

    def _left_of_body(self) -> int | None:
        """Bytes of the body still to come; None for a chunked one, which ends with a blank line as heads do."""
        if self._body_left is None:
            length = [value for name, value in self.headers if name == b"content-length"]
            self._body_left = int(length[0]) if length else None  # the parser has seen to it that it is a number
        return self._body_left

    def _set_reading(self) -> None:
        """Pause or resume reading by the unparsed bytes. Little unparsed, reading goes on: so leaving is seen."""
        if self.transport.is_closing():
            return
        held = self._waits or len(self._data) - self._at > KEPT_BYTES or (self.flow.read_paused and not self._in_head)
        if held != self._held:
            self._held = held
            (self.transport.pause_reading if held else self.transport.resume_reading)()

    def _go_on(self) -> None:
        """Parse on in a callback of its own: a body in the next round of the loop, a head when it is its turn."""
        if self._waits or not (self._held or self._at < len(self._data)):
            return
        self._waits = True
        if self._in_head:
            self.scheduler.schedule(self.loop, self._take_turn)
        else:
            self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._waits = False
        self._take()

    def parse(self, data: bytes) -> None:
        """Feed the parser. Ignores `Upgrade`: the connection stays on HTTP/1.1."""
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except HttpParserUpgrade as offer:
                    data = data[offer.args[0] :]
                    self._decline()
        except HttpParserError:
            self.send_400_response("Invalid HTTP request")

    def _decline(self) -> None:
        """Have a second parser read the body: the first one takes `Upgrade` for the end of the message."""
        framing = self.body_due()
        if framing:
            self.parser = HttpRequestParser(_RefedHead(self))
            lines = [b"%b: %b\r\n" % header for header in framing]
            self.parser.feed_data(b"".join((b"POST / HTTP/1.1\r\n", *lines, b"\r\n")))

    def body_due(self) -> Headers:
        """Headers that frame the body; empty for a request without one."""
        return [
            (name, value)
            for name, value in self.headers
            if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        ]


def _begun(data: bytes) -> int:
    """Number of bytes at the end of `data` that may belong to the end of a head."""
    return next((len(cut) for cut in _CUT if data.endswith(cut)), 0)


class _ParserFlowControl(FlowControl):
    """Flow control of the parser: the application's wishes are recorded, and the connection acts on them."""

    def __init__(self, transport: asyncio.Transport, go_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_resumed = go_on

    def pause_reading(self) -> None:
        """Have no more parsed."""
        self.read_paused = True

    def resume_reading(self) -> None:
        """Have more parsed."""
        if self.read_paused:
            self.read_paused = False
            self._on_resumed()

    def resume_writing(self) -> None:
        """The client has taken what was sent: its next request has its turn."""
        super().resume_writing()
        self._on_resumed()


class _RefedHead:
    """Callbacks of the parser for a head fed again: drop the repeated head, forward the body."""

    def __init__(self, protocol: PacedProtocol) -> None:
        self._protocol = protocol
        self._again = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._again:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._again:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._again:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._again:
            self._protocol.on_headers_complete()
        self._again = False

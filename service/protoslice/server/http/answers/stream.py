"""The one response for views: any representation, whole or by ranges, streamed with back-pressure.

Everything that can fail is decided before the first byte: the first piece is read before the head is sent. What fails
later raises, upon which the server closes the connection short of the announced length: the client sees a broken
transfer, never a complete one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from hashlib import sha256
from typing import Final, Protocol

from starlette.types import Scope, Send

from protoslice.concurrency.windows import Window
from protoslice.errors import IntegrityError
from protoslice.server.context import DisconnectWatch
from protoslice.server.http.answers.plan import Answer, AnswerPlanner, Facts, Terms
from protoslice.server.http.digests import format_digest, wants_sha256
from protoslice.server.http.headers import Fields

Buffer = bytes | memoryview
DIGESTED_AT_ONCE: Final = 1 << 20
"""Answers up to this size get the Content-Digest that was asked for."""


class RangeReadable(Facts, Protocol):
    """A representation whose bytes can be read by range."""

    def pieces(self, start: int, end: int, window: Window | None = None) -> AsyncGenerator[Buffer, None]: ...
    def check_budget(self, length: int) -> None: ...


async def send_representation(
    scope: Scope,
    send: Send,
    rope: RangeReadable,
    *,
    fields: Fields,
    terms: Terms,
    disconnect: DisconnectWatch | None,
    window: Callable[[int], Window],
) -> None:
    """Answer a GET or HEAD with `rope`, watched by `disconnect`.

    `window` gives what bounds the read-ahead of an answer, by its length.
    """
    answer = AnswerPlanner(rope, terms).answer(scope["method"], fields)
    rope.check_budget(answer.length)
    if scope["method"] == "HEAD" or answer.length == 0:
        await _send_head(send, answer)
        await send({"type": "http.response.body", "body": b""})
        return
    async with aclosing(_body(rope, answer, window(answer.length))) as body:
        piece = await anext(body)
        if len(piece) == answer.length:
            await _send_only(send, answer, piece, fields)
            return
        if answer.length <= DIGESTED_AT_ONCE and b"want-content-digest" in fields:
            await _send_only(send, answer, await _gather(piece, body), fields)
            return
        if disconnect is not None:
            disconnect.watch()
        await _send_head(send, answer)
        left = answer.length - await _take(send, piece)
        del piece
        await _pump(send, left, body)
        if disconnect is not None:
            disconnect.unwatch()  # the server reports the end of an answer like a client that has left
        await send({"type": "http.response.body", "body": b""})


async def _send_head(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})


async def _send_only(send: Send, answer: Answer, body: Buffer, fields: Fields) -> None:
    """An answer whose body is at hand."""
    _check_end(answer.length - len(body))
    given = any(name == b"content-digest" for name, _ in answer.own)
    if answer.status in {200, 206} and not given and wants_sha256(fields.get(b"want-content-digest")):
        answer.own.append((b"content-digest", format_digest(sha256(body).digest())))
    await _send_head(send, answer)
    await send({"type": "http.response.body", "body": body})


async def _pump(send: Send, left: int, body: AsyncGenerator[Buffer, None]) -> None:
    async for piece in body:
        left -= await _take(send, piece)
        if left <= 0:
            break  # the client may leave as soon as it has all: the end of the reads is not waited for
        # Pieces from the page cache to a fast client never wait: other tasks get their turn here.
        await asyncio.sleep(0)
    _check_end(left)


async def _take(send: Send, piece: Buffer) -> int:
    """Send a piece, and wait until the client has taken about all of it; the length of the piece."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})
    # The server waits before it sends, not behind: without this, the next piece would be in memory as well meanwhile.
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    return len(piece)


async def _body(rope: RangeReadable, answer: Answer, window: Window) -> AsyncGenerator[Buffer, None]:
    """All that goes over the wire, in pieces, none empty; the first one holds bytes of the representation."""
    for part in answer.parts:
        head = part.head
        async with aclosing(rope.pieces(part.start, part.end, window)) as pieces:
            async for piece in pieces:
                if len(piece):
                    yield b"".join((head, piece)) if head else piece
                    head = b""
    if answer.tail:
        yield answer.tail


async def _gather(first: Buffer, rest: AsyncGenerator[Buffer, None]) -> bytes:
    return b"".join([first, *[piece async for piece in rest]])


def _check_end(left: int) -> None:
    if left:
        raise IntegrityError(f"the response ended {left} bytes early")

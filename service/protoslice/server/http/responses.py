"""Responses with representations, whole or by ranges, streamed with back-pressure, and responses with JSON.

Errors are raised before the first byte if possible, because the first piece is read before the headers are sent. After
a later error, the server closes the connection before the announced length. The client then sees a broken transfer, and
never a response that seems complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cache
from hashlib import sha256
from json import JSONDecodeError
from typing import Any, Final

import google.protobuf
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope, Send

from protoslice.concurrency.windows import Window
from protoslice.errors import IntegrityError
from protoslice.json_text import encode_json, parse_json
from protoslice.schema.types import bundled_bytes
from protoslice.server.context import DisconnectWatch
from protoslice.server.http.digests import format_digest, wants_sha256
from protoslice.server.http.headers import HeaderMap
from protoslice.server.http.negotiation import JSON, JSON_LINES, PROTOBUF_JSON, TEXT
from protoslice.server.http.planner import ResponsePlan, ResponsePlanner, ResponsePolicy
from protoslice.server.problems import INVALID, HttpProblem
from protoslice.serving.representation import Head, Representation
from protoslice.versions import RENDERING

Buffer = bytes | memoryview
_MARKS: Final = {PROTOBUF_JSON: "pbjson", JSON: "json", TEXT: "text", JSON_LINES: "jsonl"}
_ENDINGS: Final = {TEXT: "txtpb", JSON_LINES: "jsonl"}
DIGESTED_AT_ONCE: Final = 1 << 20
"""The length limit, in bytes, of an answer that gets a Content-Digest if the request has Want-Content-Digest."""


async def send_representation(
    scope: Scope,
    send: Send,
    representation: Representation,
    *,
    fields: HeaderMap,
    policy: ResponsePolicy,
    disconnect: DisconnectWatch | None,
    window: Callable[[int], Window],
) -> None:
    """Answer a GET or HEAD with `representation`. `disconnect` watches for the client's disconnection.

    `window` takes the length of the body, and returns an object that limits how far reads run ahead.
    """
    plan = ResponsePlanner(representation, policy).plan(scope["method"], fields)
    representation.check_budget(plan.length)
    if scope["method"] == "HEAD" or plan.length == 0:
        await send_plan(send, plan)
        return
    async with aclosing(_body(representation, plan, window(plan.length))) as body:
        piece = await anext(body)
        if len(piece) == plan.length:
            await _send_only(send, plan, piece, fields)
            return
        if plan.length <= DIGESTED_AT_ONCE and b"want-content-digest" in fields:
            await _send_only(send, plan, await _gather(piece, body), fields)
            return
        if disconnect is not None:
            disconnect.watch()
        await _send_head(send, plan)
        left = plan.length - await _take(send, piece)
        del piece
        await _pump(send, left, body)
        if disconnect is not None:
            disconnect.unwatch()  # the server reports the end of an answer in the same way as a disconnect
        await send({"type": "http.response.body", "body": b""})


def rendered_head(representation: Representation, media_type: str) -> Head:
    """Return the facts about a rendered message that are known before it is rendered."""
    return Head(
        f"{representation.etag}-{_MARKS[media_type]}-{_rendered_by()}",
        f"{representation.filename.rpartition('.')[0] or representation.filename}.{_ENDINGS.get(media_type, 'json')}",
        f"{media_type}; charset=utf-8",
        representation.message_type,
    )


async def send_plan(send: Send, plan: ResponsePlan) -> None:
    """Send a response without a body."""
    await _send_head(send, plan)
    await send({"type": "http.response.body", "body": b""})


async def _send_head(send: Send, plan: ResponsePlan) -> None:
    await send({"type": "http.response.start", "status": plan.status, "headers": plan.all_headers})


async def _send_only(send: Send, plan: ResponsePlan, body: Buffer, fields: HeaderMap) -> None:
    """Send an answer whose whole body is in memory."""
    _check_end(plan.length - len(body))
    given = any(name == b"content-digest" for name, _ in plan.headers)
    if plan.status in {200, 206} and not given and wants_sha256(fields.get(b"want-content-digest")):
        plan.headers.append((b"content-digest", format_digest(sha256(body).digest())))
    await _send_head(send, plan)
    await send({"type": "http.response.body", "body": body})


async def _pump(send: Send, left: int, body: AsyncGenerator[Buffer, None]) -> None:
    async for piece in body:
        left -= await _take(send, piece)
        if left <= 0:
            break  # the client may disconnect once it has all bytes, so this does not wait until the reads end
        # With a fast client, pieces from the page cache never wait. Other tasks get their turn here.
        await asyncio.sleep(0)
    _check_end(left)


async def _take(send: Send, piece: Buffer) -> int:
    """Send a piece, and wait until the client has received most of it. Return the length of the piece."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})
    # The server waits before it sends a message, not after. Without this message, the next piece would be read
    # meanwhile.
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    return len(piece)


async def _body(representation: Representation, plan: ResponsePlan, window: Window) -> AsyncGenerator[Buffer, None]:
    """Yield the whole body in pieces, none of which is empty. The first piece has bytes of the representation."""
    for part in plan.parts:
        head = part.head
        async with aclosing(representation.pieces(part.start, part.end, window)) as pieces:
            async for piece in pieces:
                if len(piece):
                    yield b"".join((head, piece)) if head else piece
                    head = b""
    if plan.epilogue:
        yield plan.epilogue


async def _gather(first: Buffer, rest: AsyncGenerator[Buffer, None]) -> bytes:
    return b"".join([first, *[piece async for piece in rest]])


def _check_end(left: int) -> None:
    if left:
        raise IntegrityError(f"the response ended {left} bytes early")


@cache
def _rendered_by() -> str:
    """Return the versions of all that shapes a rendered form: this code, the runtime, and the types in an `Any`."""
    bundled = sha256(bundled_bytes()).hexdigest()[:16]
    return f"{RENDERING}-{google.protobuf.__version__}-{bundled}"


class StrictRequest(Request):
    """A request whose JSON is always parsed strictly, also by the framework."""

    async def json(self) -> Any:
        """Parse the body. Raise `HttpProblem` 400 for invalid Unicode and for too deep nesting."""
        if not hasattr(self, "_json"):
            try:
                self._json = parse_json(await self.body())
            except JSONDecodeError:
                raise  # the framework's answer names the position of the error
            except ValueError as error:
                raise HttpProblem(INVALID, f"Invalid JSON in the body: {error}") from None
        return self._json


class JsonAnswer(Response):
    """A JSON response that can encode any text in a record."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode `content`. Bytes are returned unchanged, because they are JSON already."""
        return content if isinstance(content, bytes) else encode_json(content)

"""Routes that return many parts of a store in one answer, or a merge that a JSON body describes instead of a URL."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Final, cast
from urllib.parse import unquote

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from protoslice.concurrency.executor import counted_work
from protoslice.errors import InvalidInput, LimitExceeded, NotFound
from protoslice.server.api.parameters import MergeQuery
from protoslice.server.api.requests import AskedPart, AskMerge, AskParts
from protoslice.server.api.view_router import FoundView, ViewRoutes, answer_view
from protoslice.server.api.views import VIEWS
from protoslice.server.auth.permissions import READ
from protoslice.server.auth.spaces import Ref
from protoslice.server.context import context_of
from protoslice.server.http.headers import Headers, header_lines, read_fields
from protoslice.server.http.negotiation import FORMS
from protoslice.server.http.planner import ResponsePlanner, ResponsePolicy
from protoslice.server.http.responses import send_representation
from protoslice.server.problems import no_view
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import SERVICES, Services
from protoslice.serving import OpenStore, Representation
from protoslice.serving.stored import Computed, Readable
from protoslice.sources.ropes import Rope

router = RouteGroup(tags=["views"])

_VIEWS: Final = ViewRoutes(VIEWS)
_MOST_PIECES: Final = 1 << 20
"""The maximum number of pieces in the ropes (lists of byte ranges) of one answer.

Each piece takes about 32 bytes of memory.
"""
_MOST_SECONDS: Final = 30
"""The limit on one answer's processor time, in seconds. Planning all parts and computing their bytes both count."""
_TOLD: Final = frozenset({
    b"content-type", b"content-length", b"content-range", b"content-disposition", b"content-location", b"etag",
    b"repr-digest", b"x-protobuf-message", b"x-tensor-dtype", b"x-tensor-shape", b"protoslice-omitted",
})  # fmt: skip
"""The headers that each part has. All other headers belong to the whole answer."""
_MULTIPART: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The parts, in the order of the request.",
        "content": {"multipart/mixed": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_MERGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The message.",
        "content": {
            media: {} if media in FORMS else {"schema": {"type": "string", "format": "binary"}}
            for media in next(view.media_types for view in VIEWS if view.segment == "merge")
        },
    }
}


class _Budget:
    """The limit on the processor time of one answer."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def spend(self, seconds: float) -> None:
        """Count finished work. Raise `LimitExceeded` if the answer has used up its processor time."""
        self._seconds += seconds
        if self._seconds > _MOST_SECONDS:
            raise LimitExceeded(
                f"These parts take more than {_MOST_SECONDS} seconds of processor time: ask for fewer at a time"
            )


@endpoint(
    router,
    "POST /v1/stores/{ref}/merge",
    READ,
    responses=_MERGED,
    operation="merge_parts",
    experimental=True,
    summary="Get a merged message by a JSON body",
)
async def merge(request: Request, services: Services, ref: Ref, body: AskMerge) -> Response:
    """Return the message that `GET` returns on this path. Unlike a URL, the body allows any number of `fields`."""
    query = MergeQuery(
        file=body.file,
        framing=body.framing,
        type=body.type,
        path=body.path,
        fields=tuple(body.fields),
        omit_larger_than=body.largest,
        omit=tuple(body.omit),
        client=context_of(request.scope).key,
    )
    found = _VIEWS.find(f"/v1/stores/{request.path_params['ref']}/merge")
    assert found is not None, "the view exists"
    return _ViewResponse(found, query, await services.stores.view(ref))


@endpoint(
    router,
    "POST /v1/stores/{ref}/parts",
    READ,
    responses=_MULTIPART,
    experimental=True,
    summary="Get many parts of a store in one response",
)
async def get_parts(request: Request, services: Services, ref: Ref, body: AskParts) -> Response:
    """Return chunks, tensors, messages and files as one `multipart/mixed` stream.

    Each part has the headers that its own URL returns: media type, length, entity tag and digest. A tensor also has the
    headers for its data type and shape. A part that is a byte range also has `Content-Range`. Nothing is sent if any
    part does not exist.
    """
    store = await services.stores.view(ref)
    boundary, pieces, count, budget = token_hex(16), list[Rope | bytes](), 0, _Budget()
    for number, part in enumerate(body.parts):
        with counted_work() as spent:
            rope, headers, span = await _planned(request, services, store, part)
        budget.spend(spent.seconds)
        count += rope.rope.piece_count
        if count > _MOST_PIECES:
            raise LimitExceeded(f"The parts consist of more than {_MOST_PIECES} pieces: ask for fewer at a time")
        line = f"--{boundary}\r\n".encode()
        pieces += [
            b"\r\n" * bool(number) + line + header_lines(headers) + b"\r\n",
            Rope(rope.rope, rope.sources).part(*span),
        ]
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    data = Rope.joined(pieces)
    listed = cast(Sequence[Readable], data.sources)  # a representation's sources have this type
    sources = [each.counted(budget.spend) if isinstance(each, Computed) else each for each in listed]
    name = f"{store.info.id[:12]}.parts"
    media = f"multipart/mixed; boundary={boundary}"
    return _PartsResponse(Representation(data.core, sources, boundary, name, media_type=media))


async def _planned(
    request: Request, services: Services, store: OpenStore, part: AskedPart
) -> tuple[Representation, Headers, tuple[int, int]]:
    """Return a part's representation, the part's headers, and the byte range to send."""
    path, _, query = part.view.partition("?")
    found = _VIEWS.find(f"/v1/stores/{store.info.id}/{unquote(path)}")
    if found is None:
        raise NotFound(no_view(part.view))
    parsed = found.view.parameters.read(query.encode(), context_of(request.scope).key)
    rope = await found.view.select(*found.view.arguments(store, found.rest, parsed))
    fields = {} if part.range is None else {b"range": part.range}
    policy = found.policy(rope.versioned, f"/v1/stores/{store.info.id}/{part.view}", services.state)
    plan = ResponsePlanner(rope, policy).plan("GET", fields)
    if len(plan.parts) != 1 or (part.range is not None and plan.status != 206):
        raise InvalidInput(f"Invalid range {part.range!r:.100}: use one range, such as bytes=0-1023")
    (span,) = plan.parts
    rope.check_budget(span.end - span.start)
    return rope, [each for each in plan.all_headers if each[0] in _TOLD], (span.start, span.end)


def _uncached(send: Send) -> Send:
    """Return a `send` that prevents caching, because POST and GET of the same URL have different answers."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [each for each in message["headers"] if each[0] not in {b"cache-control", b"content-location"}]
            message["headers"] = [*kept, (b"cache-control", b"no-store")]
        await send(message)

    return sending


class _ViewResponse(Response):
    """A view of a store as the answer to a POST. It equals the answer to a GET, but no cache may keep it."""

    def __init__(self, found: FoundView, query: object, store: OpenStore) -> None:
        super().__init__()
        self._asked = found, query, store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the view as the answer to a POST."""
        found, query, store = self._asked
        asked = {**scope, "method": "GET"}
        await answer_view(found, query, scope[SERVICES], asked, _uncached(send), read_fields(scope), store)


class _PartsResponse(Response):
    """The answer that holds all parts as one stream."""

    def __init__(self, rope: Representation) -> None:
        super().__init__()
        self._rope = rope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts as the answer to a POST."""
        services: Services = scope[SERVICES]
        context = context_of(scope)
        await send_representation(
            {**scope, "method": "GET"},
            _uncached(send),
            self._rope,
            fields={},
            policy=ResponsePolicy(location=None, private=services.state.authenticator.closed, max_ranges=0),
            disconnect=context.disconnect,
            window=lambda length: services.state.windows.open(length, context.key),
        )

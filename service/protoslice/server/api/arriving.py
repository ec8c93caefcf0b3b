"""Records of unfinished uploads, for readers that wait for more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, nullcontext
from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from protoslice.server.api.documentation.openapi_fragments import BINARY, header
from protoslice.server.auth.permissions import READ
from protoslice.server.auth.spaces import url_of
from protoslice.server.bodies.tus import PREFIX, render_tus, upload_headers
from protoslice.server.context import context_of
from protoslice.server.http.query import with_parameter
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given
from protoslice.uploads import ArrivingRequest

router = RouteGroup(tags=["uploads"], render=render_tus)

_URL: Final = f"{PREFIX}/{{upload}}/records"
_MEDIA_TYPES: Final = ("application/x-protobuf-delimited", "application/octet-stream")
_SAID: Final = {
    "link": header("The following records, with `rel=next`, or the store, with `rel=related`."),
    "upload-complete": header("`?1` when the upload has ended."),
}

After = Annotated[int, Query(ge=0, lt=1 << 62, description="Number of records that the client already has.")]
Wait = Annotated[float, Query(ge=0, le=30, description="Seconds to wait if there are no more records yet.")]
FramingOfUpload = Annotated[
    str | None, Query(description="Framing of the upload; needed if it cannot be detected from the first bytes.")
]
FramingOfAnswer = Annotated[str, Query(description="Framing of the response.")]


@endpoint(
    router,
    f"GET {_URL}",
    READ,
    fails=(409, 410, 413, 415),
    responses={
        200: {
            "description": "Records in order; none if the wait timed out or the upload has ended.",
            "content": {media_type: {"schema": BINARY} for media_type in _MEDIA_TYPES},
            "headers": _SAID,
        }
    },
    response_class=Response,
    experimental=True,
    summary="Read records of an upload in progress",
)
async def get_arriving_records(
    request: Request,
    services: Given,
    upload: str,
    after: After = 0,
    wait: Wait = 0,
    framing: FramingOfUpload = None,
    format: FramingOfAnswer = "delimited",
) -> Response:
    """Return records whose bytes are durable, a few MiB at most, without disturbing the upload."""
    wanted = ArrivingRequest(after, wait, framing, format)
    async with AsyncExitStack() as opened:
        with services.clients.readers.one(context_of(request.scope).key) if wait else nullcontext():
            found = await opened.enter_async_context(services.stores.uploads.arriving.after(upload, wanted))
        headers = upload_headers(found.upload, request.scope) | {
            "content-length": str(found.records.size),
            "upload-complete": "?0" if found.upload.state == "open" else "?1",
        }
        if found.next is not None:
            query = with_parameter(request.scope["query_string"], "after", str(found.next))
            links = [headers.get("link"), f'<{url_of(request.scope, PREFIX)}/{upload}/records?{query}>; rel="next"']
            headers["link"] = ", ".join(filter(None, links))
        window = services.windows.open(found.records.size, context_of(request.scope).key)
        pieces = await opened.enter_async_context(aclosing(found.records.pieces(0, found.records.size, window)))
        first = await anext(pieces, b"")  # raises before the head of the response is sent
        return _Opened(_all(first, pieces), headers, found.records.media_type, opened.pop_all())
    raise AssertionError("a with block that returns")  # pragma: no cover


class _Opened(StreamingResponse):
    """Response that closes `opened`, which its body reads, when it ends."""

    def __init__(
        self, body: AsyncGenerator[bytes | memoryview], headers: dict[str, str], media_type: str, opened: AsyncExitStack
    ) -> None:
        super().__init__(body, 200, headers, media_type)
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and close what it reads."""
        async with self._opened:
            await super().__call__(scope, receive, send)


async def _all(
    first: bytes | memoryview, rest: AsyncGenerator[bytes | memoryview]
) -> AsyncGenerator[bytes | memoryview]:
    yield first
    async for piece in rest:
        yield piece

"""Routes for resumable uploads with tus 1.0: create, continue, look up or cancel uploads, and read their records."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, nullcontext
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from protoslice.errors import InvalidInput
from protoslice.server.api.encoding import encode_fact
from protoslice.server.api.json_answers import next_page
from protoslice.server.api.models import UploadState
from protoslice.server.auth.permissions import OPEN, READ, WRITE, Rule, Scope, from_upload
from protoslice.server.auth.spaces import url_of
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.bodies.new_store import StoreQuery
from protoslice.server.bodies.tus import (
    BODY_TYPE,
    PREFIX,
    VERSION,
    check_type,
    check_version,
    checksum_of,
    has_body,
    joined_uploads,
    new_upload,
    number,
    render_tus,
    tus_options,
    upload_headers,
)
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap, read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.problems import METHOD, HttpProblem, problem_of_error
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.request.failures import body_at_fault
from protoslice.server.routing import BINARY, RouteGroup, endpoint, header
from protoslice.server.services import Services
from protoslice.uploads import ArrivingRequest, Body, Upload

router = RouteGroup(tags=["uploads"], render=render_tus)

Filename = Annotated[str | None, Query(description="Path of the file in the store.", examples=["model.onnx"])]

_RESPONSE_HEADERS: Final = {
    "upload-offset": header("Number of durable bytes.", "integer"),
    "upload-expires": header("When the upload, or its result, expires."),
    "protoslice-store": header("Id of the store, once it exists."),
    "link": header("The store, with `rel=related`."),
    "tus-resumable": header("Version of tus: `1.0.0`."),
}
_TEXT: Final = {"type": "string"}
_BYTES: Final = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_REQUEST_HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Tus-Resumable": ("Version of tus: `1.0.0`.", {"type": "string", "pattern": r"^1\.0\.0$"}),
    "Upload-Offset": ("Offset of the body in the upload; required to continue.", _BYTES),
    "Upload-Length": ("Total number of bytes.", _BYTES),
    "Upload-Defer-Length": ("`1`: the length will be sent later.", _TEXT),
    "Upload-Metadata": (
        "`filename`, `type`, `root`, `tag` (several separated by spaces), `min_chunk`, `max_chunk`, "
        "`rule` (several on separate lines), `strict`; each word with its value in base64, separated by commas.",
        _TEXT,
    ),
    "Upload-Concat": ("`partial`, or `final;` and the URLs of partial uploads.", _TEXT),
    "Upload-Checksum": ("`sha256`, `crc32c` or `sha1`, and the digest of the body in base64.", _TEXT),
    "Repr-Digest": ("Digest of the whole upload, which the service verifies: `sha-256=:<base64>:`.", _TEXT),
}


def _documented(*names: str, body: bool = False) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "header", "required": False, "schema": schema, "description": said}
        for name, (said, schema) in _REQUEST_HEADERS.items()
        if name in names
    ]
    content = {"requestBody": {"required": False, "content": {BODY_TYPE: {"schema": BINARY}}}}
    return {"parameters": parameters} | (content if body else {})


@endpoint(
    router, f"OPTIONS {PREFIX}", OPEN, status=204, operation="get_upload_abilities", summary="Get the upload features"
)
@endpoint(router, f"OPTIONS {PREFIX}/{{upload}}", OPEN, include_in_schema=False)
async def upload_abilities(request: Request, services: Services) -> Response:
    """Return the tus version, extensions and limits."""
    allowed = "OPTIONS, HEAD, GET, PATCH, DELETE" if "upload" in request.path_params else "OPTIONS, POST"
    headers = tus_options(services.state.settings) | {"allow": allowed}
    return Response(status_code=204, headers=headers)


@endpoint(
    router,
    f"POST {PREFIX}",
    Rule(Scope.WRITE, tags=from_upload),
    status=201,
    fails=(409, 410, 460),
    responses={
        201: {
            "description": "The upload was created.",
            "headers": {"location": header("URL of the upload."), **_RESPONSE_HEADERS},
        }
    },
    response_class=Response,
    openapi_extra=_documented(*(set(_REQUEST_HEADERS) - {"Upload-Offset"}), body=True),
    summary="Start a resumable upload",
    body=UPLOAD_PART,
)
async def create_upload(
    request: Request, services: Services, options: StoreQuery, filename: Filename = None
) -> Response:
    """Start an upload with tus 1.0. The body may contain the first bytes."""
    fields = read_fields(request.scope)
    check_version(fields, required=True)
    wanted = new_upload(fields, filename, options)
    wanted = replace(wanted, client=pseudonym(context_of(request.scope).key))
    uploads = services.uploads
    concat = fields.get(b"upload-concat", "")
    if concat and concat != "partial":
        async with upload_slot(services, request):
            with body_at_fault():
                upload = await uploads.join(joined_uploads(concat), wanted)
    else:
        if has_body(fields):
            check_type(fields)
        checksum_of(fields)  # raises before the upload is created
        upload = await uploads.create(wanted)
        if has_body(fields):
            upload = await _append(request, services, upload.id, fields, offset=0)
    services.state.metrics.resumable.labels("begun").inc()
    return _upload_response(
        request, services, upload, status=201, headers={"location": url_of(request.scope, f"{PREFIX}/{upload.id}")}
    )


@endpoint(
    router,
    f"GET {PREFIX}/{{upload}}",
    WRITE,
    answer=UploadState,
    fails=(409, 410, 412, 413, 415, 507),
    responses={200: {"headers": _RESPONSE_HEADERS}},
    openapi_extra=_documented("Tus-Resumable"),
    summary="Get the state of an upload",
)
async def get_upload(request: Request, services: Services, upload: str) -> Response:
    """Return the number of bytes that are stored durably.

    This call ends any other request that still sends to the same upload, so that the number stays valid. HEAD returns
    the same headers. If the upload was complete but could not become a store, GET and HEAD return the problem.
    """
    check_version(read_fields(request.scope))
    found = await services.uploads.get(upload)
    return _upload_response(request, services, found, status=200, content=encode_fact(state_of(found)))


@endpoint(
    router,
    f"PATCH {PREFIX}/{{upload}}",
    WRITE,
    status=204,
    fails=(409, 410, 460),
    responses={204: {"description": "All bytes of the body are durable.", "headers": _RESPONSE_HEADERS}},
    openapi_extra=_documented(*(set(_REQUEST_HEADERS) - {"Upload-Metadata", "Upload-Concat"}), body=True),
    summary="Continue an upload",
    body=UPLOAD_PART,
)
async def append_to_upload(request: Request, services: Services, upload: str) -> Response:
    """Append the body at `Upload-Offset`. The last byte creates the store."""
    fields = read_fields(request.scope)
    check_version(fields, required=True)
    check_type(fields)
    offset = number(fields, "upload-offset")
    if offset is None:
        raise InvalidInput("The header Upload-Offset is missing: send the offset of the first byte in the body")
    found = await _append(request, services, upload, fields, offset=offset)
    return _upload_response(request, services, found, status=204)


@endpoint(
    router,
    f"DELETE {PREFIX}/{{upload}}",
    WRITE,
    status=204,
    fails=(409, 410),
    openapi_extra=_documented("Tus-Resumable"),
    summary="Cancel an upload",
)
async def delete_upload(request: Request, services: Services, upload: str) -> Response:
    """Cancel an upload.

    A store that was created from the upload is kept.
    """
    check_version(read_fields(request.scope))
    await services.uploads.remove(upload)
    services.state.metrics.resumable.labels("removed").inc()
    return Response(status_code=204, headers={"cache-control": "no-store", "tus-resumable": VERSION})


@endpoint(router, f"POST {PREFIX}/{{upload}}", WRITE, include_in_schema=False, body=UPLOAD_PART)
async def override(request: Request, services: Services, upload: str) -> Response:
    """Call the method in X-HTTP-Method-Override, for clients that can only send POST."""
    method = read_fields(request.scope).get(b"x-http-method-override", "")
    handler = {"PATCH": append_to_upload, "DELETE": delete_upload, "HEAD": get_upload}.get(method.upper())
    if handler is None:
        raise HttpProblem(METHOD, METHOD.advice, headers={"allow": "OPTIONS, HEAD, GET, PATCH, DELETE"})
    return await handler(request, services, upload)


async def _append(request: Request, services: Services, upload_id: str, fields: HeaderMap, *, offset: int) -> Upload:
    body = Body(
        pieces=body_stream(request.receive),
        offset=offset,
        size=number(fields, "content-length"),
        length=number(fields, "upload-length"),
        checksum=checksum_of(fields),
    )
    async with upload_slot(services, request):
        return await services.uploads.append(upload_id, body)


def state_of(upload: Upload) -> UploadState:
    """Return the state of an upload in its JSON form."""
    return UploadState(
        id=upload.id,
        state=upload.state,
        offset=upload.offset,
        length=upload.length,
        filename=upload.path,
        expires=upload.expires,
        store=upload.store,
    )


def _upload_response(
    request: Request,
    services: Services,
    upload: Upload,
    *,
    status: int,
    headers: dict[str, str] | None = None,
    content: bytes | None = None,
) -> Response:
    """Return the response about an upload. Raise the problem if the upload could not become a store."""
    found = upload_headers(upload, request.scope) | (headers or {})
    context_of(request.scope).store = upload.store
    if request.method != "GET" and upload.state in {"stored", "failed"}:
        services.state.metrics.resumable.labels(upload.state).inc()
    if upload.failure is not None:
        error = upload.failure.error()
        error.slug = error.upload_slug
        failure = problem_of_error(error)
        failure.headers.update(found)
        raise failure
    if content is None:
        return Response(status_code=status, headers=found)
    return JsonAnswer(content, status, found)


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
    services: Services,
    upload: str,
    after: After = 0,
    wait: Wait = 0,
    framing: FramingOfUpload = None,
    format: FramingOfAnswer = "delimited",
) -> Response:
    """Return records whose bytes are already stored durably, at most a few MiB. The upload continues."""
    wanted = ArrivingRequest(after, wait, framing, format)
    async with AsyncExitStack() as opened:
        with services.state.clients.readers.one(context_of(request.scope).key) if wait else nullcontext():
            found = await opened.enter_async_context(services.stores.uploads.arriving.after(upload, wanted))
        headers = upload_headers(found.upload, request.scope) | {
            "content-length": str(found.records.size),
            "upload-complete": "?0" if found.upload.state == "open" else "?1",
        }
        if found.next is not None:
            following = next_page(request.scope, str(found.next), name="after")["link"]
            headers["link"] = ", ".join(filter(None, [headers.get("link"), following]))
        window = services.state.windows.open(found.records.size, context_of(request.scope).key)
        pieces = await opened.enter_async_context(aclosing(found.records.pieces(0, found.records.size, window)))
        first = await anext(pieces, b"")  # raises before the head of the response is sent
        return _Opened(_all(first, pieces), headers, found.records.media_type, opened.pop_all())
    raise AssertionError("a with block that returns")  # pragma: no cover


class _Opened(StreamingResponse):
    """A response that closes `opened` when it ends, because its body reads from `opened`."""

    def __init__(
        self, body: AsyncGenerator[bytes | memoryview], headers: dict[str, str], media_type: str, opened: AsyncExitStack
    ) -> None:
        super().__init__(body, 200, headers, media_type)
        self._opened = opened

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Send the response, then close its source."""
        async with self._opened:
            await super().__call__(scope, receive, send)


async def _all(
    first: bytes | memoryview, rest: AsyncGenerator[bytes | memoryview]
) -> AsyncGenerator[bytes | memoryview]:
    yield first
    async for piece in rest:
        yield piece

"""Taking stores in: from a body, or over objects in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from starlette.responses import Response

from protoslice.errors import CorruptModel, StorageDenied
from protoslice.server.api.documentation.openapi_fragments import BINARY, header, problems
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import made_answer
from protoslice.server.api.models import CreatedStore
from protoslice.server.api.request_bodies import Register
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.rules import Rule, TagPlace
from protoslice.server.bodies.ingest import ingest_body, upload_slot
from protoslice.server.http.disconnect import CancelOnDisconnect
from protoslice.server.http.parameters import plain_size
from protoslice.server.problems import UNSUPPORTED, HttpProblem, problem_of_error
from protoslice.server.request.body_limits import UPLOAD_BODY, takes_body
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given
from protoslice.stores import TAGS_AT_ONCE, IngestRequest

router = GuardedRouter(tags=["stores"])
_TAGGED = Rule(Scope.WRITE, TagPlace.QUERY)

DEFAULT_MIN_CHUNK = "1MiB"
DEFAULT_MAX_CHUNK = "1GiB"

Type = Annotated[str | None, Query(description="Full message type of the root proto; default: detected.")]
Root = Annotated[str | None, Query(description="Path of the root proto; default: detected.")]
Tags = Annotated[list[str], Query(description="Tag to point at the store; repeatable.", max_length=TAGS_AT_ONCE)]
Filename = Annotated[
    str | None, Query(description="File name, for a body that is a single file.", examples=["model.onnx"])
]
Format = Annotated[
    Literal["tar", "recipe"] | None,
    Query(
        description="Format of an `application/octet-stream` body that is not a single file: a tar archive of a "
        "directory, or a recipe. Not needed with `Content-Type: application/x-tar` or the media type of recipes."
    ),
]
Base = Annotated[
    str | None,
    Query(
        description="Store of an earlier version: data that is equal at the same offset of a file is not stored "
        "again. Default: the store that the first `tag` points at, else the last version with the same "
        "name (`resnet50:2` for `resnet50:3`)."
    ),
]
MinChunk = Annotated[str, Query(description="Fields of at least this size become chunks.", examples=["1MiB"])]
MaxChunk = Annotated[
    str, Query(description="Repeated fields are cut into chunks of at most this size.", examples=["1GiB"])
]
Plan = Annotated[
    str | None,
    Query(description="`policy` splits a chunked file by the chunk sizes; by default it keeps its own chunks."),
]
Rules = Annotated[
    list[str] | None,
    Query(
        description="Split rule such as `node: every 1000`, which takes precedence over the sizes; repeatable. A "
        "single empty rule disables those configured for the type.",
        max_length=64,
    ),
]
Report = Annotated[bool, Query(description="Include a report on the model in the response.")]
Strict = Annotated[bool, Query(description="Reject a model with missing files or wrong checksums.")]

_LOCATION = {"location": header("Permanent URL of the store."), "etag": header("Entity tag of the store's JSON.")}
_FORM = {"type": "object", "properties": {"file": {"type": "array", "items": BINARY}}}
_REPR_DIGEST = {
    "name": "Repr-Digest",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Digest of the upload, which the service verifies: `sha-256=:<base64>:`.",
}


def _body(*, with_form: bool) -> dict[str, Any]:
    """Return the body in the document: one binary type, as generated clients send it, and by POST a form."""
    content = {"application/octet-stream": BINARY} | ({"multipart/form-data": _FORM} if with_form else {})
    return {
        "requestBody": {
            "description": f"A single file, or what `format` says{'; or a form with files' if with_form else ''}.",
            "required": True,
            "content": {media: {"schema": schema} for media, schema in content.items()},
        },
        "parameters": [_REPR_DIGEST],
    }


CREATED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The store existed already.", "model": CreatedStore, "headers": _LOCATION},
    201: {"description": "The store has been created.", "headers": _LOCATION},
    **problems(403, 404, 409, 413, 415, 422, 507),
}


async def _wanted(  # noqa: PLR0913 - each is a parameter of the query
    type: Type = None,
    root: Root = None,
    tag: Tags = [],  # noqa: B006
    min_chunk: MinChunk = DEFAULT_MIN_CHUNK,
    max_chunk: MaxChunk = DEFAULT_MAX_CHUNK,
    report: Report = False,
    strict: Strict = False,
    plan: Plan = None,
    rule: Rules = None,
) -> IngestRequest:
    return IngestRequest(
        type=type,
        root=root,
        tags=tuple(tag),
        min_chunk=plain_size(min_chunk),
        max_chunk=plain_size(max_chunk),
        report=report,
        strict=strict,
        plan=plan,
        rules=None if rule is None else tuple(filter(None, rule)),
    )


Options = Annotated[IngestRequest, Depends(_wanted)]
"""Options of a store in the query."""


@takes_body(UPLOAD_BODY)
async def create_store(
    request: Request,
    services: Given,
    wanted: Options,
    filename: Filename = None,
    format: Format = None,
    base: Base = None,
) -> Response:
    """Create a store from the body, which is streamed and stored unchanged."""
    made = await ingest_body(request, services, wanted, filename, base, format)
    return await made_answer(request, services.stores, made)


for _method, _operation in (("POST", "create_store"), ("PUT", "create_store_by_put")):
    endpoint(
        router,
        f"{_method} /v1/stores",
        _TAGGED,
        answer=CreatedStore,
        status=201,
        responses=CREATED,
        operation=_operation,
        deprecated=("2026-11-29", "POST /v1/stores") if _method == "PUT" else None,
        openapi_extra=_body(with_form=_method == "POST"),
        summary="Upload a store",
    )(create_store)


@endpoint(
    router,
    "POST /v1/stores/register",
    Rule(Scope.REGISTER, TagPlace.BODY),
    answer=CreatedStore,
    status=201,
    responses=CREATED,
    experimental=True,
    summary="Create a store from objects in a bucket, without copying them",
)
async def register_store(request: Request, services: Given, body: Register) -> Response:
    """Index objects in an allowed storage, without copying them."""
    services.allow_tags(body.tags)
    wanted = replace(body.wanted(), source="register")
    try:
        async with upload_slot(services, request), CancelOnDisconnect(request.receive):
            made = await services.stores.register(body.files, wanted)
    except CorruptModel as error:
        raise problem_of_error(error, uploading=True) from error
    except StorageDenied as error:
        # Not our own storage: the source is the client's choice.
        raise HttpProblem(UNSUPPORTED, "This source is not allowed by the operator, or cannot be read") from error
    return await made_answer(request, services.stores, made)

"""Routes that create stores from a body, a form, registered objects, finished uploads or a folder of artifacts."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.errors import CorruptModel, StorageDenied
from protoslice.mlflow import MlflowArtifacts
from protoslice.server.api.json_answers import created_response
from protoslice.server.api.models import CreatedStore
from protoslice.server.api.requests import Assemble, Register
from protoslice.server.auth.permissions import Rule, Scope, from_body, from_query
from protoslice.server.bodies.ingest import ingest_archive, ingest_body, ingest_recipe, upload_slot
from protoslice.server.bodies.new_store import Report, StoreQuery
from protoslice.server.bodies.tus import upload_id
from protoslice.server.context import context_of
from protoslice.server.http.disconnect import CancelOnDisconnect
from protoslice.server.problems import UNSUPPORTED, HttpProblem
from protoslice.server.request.body import UPLOAD_BODY
from protoslice.server.request.failures import body_at_fault
from protoslice.server.routing import BINARY, Deprecated, RouteGroup, endpoint, header
from protoslice.server.services import Services
from protoslice.stores import Created, IngestRequest

router = RouteGroup(tags=["stores"])
_TAGGED = Rule(Scope.WRITE, tags=from_query)

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
    """Return the body's OpenAPI description.

    The description has a binary body, which generated clients send. For POST, the body may also be a form.
    """
    content = {"application/octet-stream": BINARY} | ({"multipart/form-data": _FORM} if with_form else {})
    return {
        "requestBody": {
            "description": "A single file, or the archive or recipe that `format` names"
            f"{'; or a form with files' if with_form else ''}.",
            "required": True,
            "content": {media: {"schema": schema} for media, schema in content.items()},
        },
        "parameters": [_REPR_DIGEST],
    }


CREATED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The store existed already.", "model": CreatedStore, "headers": _LOCATION},
    201: {"description": "The store has been created.", "headers": _LOCATION},
}


async def create_store(
    request: Request,
    services: Services,
    options: StoreQuery,
    filename: Filename = None,
    format: Format = None,
    base: Base = None,
    report: Report = False,
) -> Response:
    """Create a store from the body. The service streams the body and stores it unchanged."""
    wanted = replace(options.request(), report=report)
    made = await ingest_body(request, services, wanted, filename, base, format)
    return await created_response(request, services, made)


for _method, _operation in (("POST", "create_store"), ("PUT", "create_store_by_put")):
    endpoint(
        router,
        f"{_method} /v1/stores",
        _TAGGED,
        answer=CreatedStore,
        status=201,
        body=UPLOAD_BODY,
        fails=(409,),
        responses=CREATED,
        operation=_operation,
        deprecated=Deprecated("2026-11-29", "POST /v1/stores") if _method == "PUT" else None,
        openapi_extra=_body(with_form=_method == "POST"),
        summary="Upload a store",
    )(create_store)


@endpoint(
    router,
    "POST /v1/stores/register",
    Rule(Scope.REGISTER, tags=from_body),
    answer=CreatedStore,
    status=201,
    fails=(409,),
    responses=CREATED,
    experimental=True,
    summary="Create a store from objects in a bucket, without copying them",
)
async def register_store(request: Request, services: Services, body: Register) -> Response:
    """Index objects in an allowed storage without copying them."""
    services.auth.require(Scope.REGISTER, tags=body.tags)
    wanted = replace(body.request(), source="register")
    try:
        async with upload_slot(services, request), CancelOnDisconnect(request.receive):
            made = await services.stores.register(body.files, wanted)
    except CorruptModel as error:
        error.slug = error.upload_slug
        raise
    except StorageDenied as error:
        # The client chose the source, so the failure does not concern the service's own storage.
        raise HttpProblem(
            UNSUPPORTED, "The operator does not allow this source, or the service cannot read it"
        ) from error
    return await created_response(request, services, made)


@endpoint(
    router,
    "POST /v1/stores/assemble",
    Rule(Scope.WRITE, tags=from_body),
    answer=CreatedStore,
    status=201,
    fails=(409, 410),
    responses={
        200: {"description": "The store already existed.", "model": CreatedStore},
        201: {"description": "The store was created.", "headers": {"location": header("URL of the store.")}},
    },
    experimental=True,
    summary="Create a store from finished uploads",
    tags=["uploads", "stores"],
)
async def assemble_store(request: Request, services: Services, body: Assemble) -> Response:
    """Create a store from uploaded files, a recipe or an archive. One or more uploads make up each file."""
    services.auth.require(Scope.WRITE, tags=body.tags)
    async with upload_slot(services, request):
        with body_at_fault():
            made = await _assembled(services, body, body.request())
    context_of(request.scope).store = made.store.id
    return await created_response(request, services, made)


async def _assembled(services: Services, body: Assemble, wanted: IngestRequest) -> Created:
    if body.recipe is not None:
        async with aclosing(services.uploads.content(upload_id(body.recipe))) as recipe:
            return await ingest_recipe(services, wanted, recipe)
    if body.archive is not None:
        async with aclosing(services.uploads.content(upload_id(body.archive))) as archive:
            return await ingest_archive(services, wanted, archive)
    files = {
        path: [upload_id(url) for url in ([urls] if isinstance(urls, str) else urls)]
        for path, urls in body.uploads.items()
    }
    return await services.uploads.assemble(files, wanted, body.sha256)


@endpoint(
    router,
    "POST /v1/drafts/{name:path}",
    Rule(Scope.WRITE, tags=from_query, reads=True),
    answer=CreatedStore,
    status=201,
    fails=(409, 413, 415),
    responses=CREATED,
    experimental=True,
    summary="Create a store from a folder of MLflow artifacts",
)
async def store_draft(
    request: Request, services: Services, name: str, options: StoreQuery, report: Report = False
) -> Response:
    """Create a store from the current files of an MLflow artifact folder. Large files are not copied."""
    wanted = replace(options.request(), report=report)
    async with upload_slot(services, request):
        made = await MlflowArtifacts(services.stores).store(name.strip("/"), wanted)
    return await created_response(request, services, made)

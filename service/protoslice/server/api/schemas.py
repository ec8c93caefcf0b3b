"""Routes for schemas, which are uploaded descriptor sets. Requests can name the message types in these schemas."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from starlette.responses import Response

from protoslice.facts import Schema
from protoslice.server.api.encoding import encode_fact, encode_items
from protoslice.server.api.json_answers import Condition, Current, Cursor, Limit, conditional, json_answer, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import READ, SCHEMAS
from protoslice.server.auth.spaces import url_of
from protoslice.server.http.conditions import EntityTag
from protoslice.server.http.headers import media_type_of, read_fields
from protoslice.server.problems import MEDIA, HttpProblem
from protoslice.server.request.body import SCHEMA_BODY
from protoslice.server.routing import BINARY, RouteGroup, endpoint, header
from protoslice.server.services import Services
from protoslice.serving.representation import Head, Representation

router = RouteGroup(tags=["schemas"])

_TYPES = ("application/protobuf", "application/x-protobuf", "application/x-protobuffer", "application/octet-stream")
_ETAG = {"etag": header("Entity tag of the descriptor set.")}


async def _current(request: Request, services: Services) -> Current:
    found, _ = await services.stores.schemas.get(request.path_params["name"])
    return Current(EntityTag.of(found.etag), found.etag)


Unchanged = Annotated[Condition, conditional(_current)]


@endpoint(router, "GET /v1/schemas", READ, answer=PageOf[Schema], cached=True, summary="List schemas")
async def list_schemas(
    request: Request,
    services: Services,
    cursor: Cursor,
    limit: Limit = 100,
) -> Response:
    """List schemas by name."""
    page = await services.stores.schemas.page(limit, cursor)
    return page_answer(request, page, encode_items(page.items, Schema))


@endpoint(
    router,
    "GET /v1/schemas/{name}",
    READ,
    cached=True,
    responses={200: {"content": {"application/protobuf": {"schema": BINARY}}, "headers": _ETAG}},
    summary="Get a descriptor set",
    response_class=Response,
)
async def get_schema(request: Request, services: Services, name: str) -> Response:
    """Return the serialized `FileDescriptorSet` as it was uploaded."""
    info, data = await services.stores.schemas.get(name)
    etag, message_type = EntityTag.of(info.etag).opaque, "google.protobuf.FileDescriptorSet"
    whole = Representation.of_bytes(data, Head(etag, f"{name}.binpb", "application/protobuf", message_type))
    return RepresentationResponse(whole, location=url_of(request.scope, f"/v1/schemas/{name}"), max_ranges=0)


@endpoint(
    router,
    "PUT /v1/schemas/{name}",
    SCHEMAS,
    answer=Schema,
    fails=(409,),
    responses={
        200: {"description": "The schema was replaced.", "headers": _ETAG},
        201: {"description": "The schema was created.", "model": Schema, "headers": _ETAG},
    },
    openapi_extra={"requestBody": {"required": True, "content": {"application/protobuf": {"schema": BINARY}}}},
    summary="Upload a descriptor set",
    body=SCHEMA_BODY,
)
async def put_schema(request: Request, services: Services, name: str, condition: Unchanged) -> Response:
    """Store a serialized `FileDescriptorSet`. Requests can then name its message types in `type=`."""
    if media_type_of(read_fields(request.scope), _TYPES[0]) not in _TYPES:
        raise HttpProblem(MEDIA, "Send the descriptor set as application/protobuf", offers=list(_TYPES))
    info, created = await services.stores.schemas.put(
        name, await request.body(), if_match=condition.version, if_none_match=condition.absent
    )
    headers = {"location": url_of(request.scope, f"/v1/schemas/{name}")} if created else {}
    body, status = encode_fact(info, Schema), 201 if created else 200
    return json_answer(request, body, status=status, headers=headers, etag=EntityTag.of(info.etag))


@endpoint(router, "DELETE /v1/schemas/{name}", SCHEMAS, status=204, fails=(409,), summary="Remove a schema")
async def delete_schema(services: Services, name: str, condition: Unchanged) -> Response:
    """Remove a schema. Stores that use the schema keep their own copies of it."""
    await services.stores.schemas.delete(name, if_match=condition.version)
    return Response(status_code=204)

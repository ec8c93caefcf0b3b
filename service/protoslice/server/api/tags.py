"""Routes for tags, which are movable names of stores. Conditional requests change tags with compare-and-set."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.syntax import is_id
from protoslice.facts import Tag
from protoslice.server.api.encoding import encode_fact, encode_items
from protoslice.server.api.json_answers import Condition, Current, Cursor, Limit, conditional, json_answer, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.requests import PutTag
from protoslice.server.auth.permissions import READ, Rule, Scope, from_path
from protoslice.server.auth.spaces import url_of
from protoslice.server.http.conditions import EntityTag
from protoslice.server.routing import RouteGroup, endpoint, header
from protoslice.server.services import Services
from protoslice.stores import ResultPage

router = RouteGroup(tags=["tags"])

_ETAG = {"etag": header("Entity tag, which changes whenever the tag is set.")}


async def _current(request: Request, services: Services) -> Current:
    found = await services.stores.tags.get(request.path_params["tag"])
    return Current(EntityTag.of(found.etag), found.etag, {"store": found.store})


Unchanged = Annotated[Condition, conditional(_current)]


@endpoint(router, "GET /v1/tags", READ, answer=PageOf[Tag], cached=True, summary="List tags")
async def list_tags(
    request: Request,
    services: Services,
    cursor: Cursor,
    store: Annotated[str | None, Query(description="Only tags of this store: an id or a tag.")] = None,
    limit: Limit = 100,
) -> Response:
    """List tags, sorted by name."""
    stores = services.stores
    store_id = None if store is None else (await stores.manifests.get(await stores.resolve(store))).id
    page = ResultPage(*await stores.tags.page(limit, cursor, store=store_id))
    return page_answer(request, page, encode_items(page.items, Tag))


@endpoint(
    router,
    "GET /v1/tags/{tag}",
    READ,
    answer=Tag,
    cached=True,
    responses={200: {"headers": _ETAG}},
    summary="Get a tag",
)
async def get_tag(request: Request, services: Services, tag: str) -> Response:
    """Return the store that a tag points at."""
    found = await services.stores.tags.get(tag)
    return json_answer(request, encode_fact(found, Tag), etag=EntityTag.of(found.etag))


@endpoint(
    router,
    "PUT /v1/tags/{tag}",
    Rule(Scope.WRITE, tags=from_path),
    answer=Tag,
    fails=(409,),
    responses={
        200: {"description": "The tag was moved.", "headers": _ETAG},
        201: {
            "description": "The tag was created.",
            "model": Tag,
            "headers": _ETAG | {"location": header("URL of the tag.")},
        },
    },
    summary="Set a tag",
)
async def put_tag(
    request: Request,
    services: Services,
    tag: str,
    body: PutTag,
    condition: Unchanged,
) -> Response:
    """Set a tag. If the request has conditions, set the tag only if it has not changed."""
    if not is_id(body.store):  # the answer reveals the whole id for a tag or a beginning of an id
        services.auth.require(Scope.READ)
    found, created = await services.stores.put_tag(
        tag, body.store, if_match=condition.version, if_none_match=condition.absent
    )
    headers = {"location": url_of(request.scope, f"/v1/tags/{tag}")} if created else {}
    return json_answer(
        request, encode_fact(found, Tag), status=201 if created else 200, headers=headers, etag=EntityTag.of(found.etag)
    )


@endpoint(
    router,
    "DELETE /v1/tags/{tag}",
    Rule(Scope.DELETE, tags=from_path),
    status=204,
    fails=(409,),
    summary="Remove a tag",
)
async def delete_tag(services: Services, tag: str, condition: Unchanged) -> Response:
    """Remove a tag. The store remains."""
    await services.stores.tags.remove(tag, if_match=condition.version)
    return Response(status_code=204)

"""Tags: movable names, with compare-and-set."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Request
from starlette.responses import Response

from protoslice.errors import Conflict, NotFound
from protoslice.facts import Tag
from protoslice.server.access.decision import Scope
from protoslice.server.access.places import url_of
from protoslice.server.access.rules import READ, Rule, TagPlace
from protoslice.server.api.documentation.openapi_fragments import header
from protoslice.server.api.encoding import encode_fact, encode_items
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import Cursor, Limit, json_answer, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.problems import PRECONDITION, HttpProblem
from protoslice.server.api.request_bodies import PutTag
from protoslice.server.http.conditions import EntityTag, Preconditions, Validators, Verdict, evaluate
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.services import Given, Services
from protoslice.stores import StoredTag
from protoslice.stores.names import is_id

router = GuardedRouter(tags=["tags"])

IfMatch = Annotated[str | None, Header(description="Only if the tag has this entity tag; `*`: only if it exists.")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: only if the tag does not exist.")]
_ETAG = {"etag": header("Changes whenever the tag is set.")}


@endpoint(router, "GET /v1/tags", READ, answer=PageOf[Tag], fails=(404,), cached=True, summary="List tags")
async def list_tags(
    request: Request,
    services: Given,
    store: Annotated[str | None, Query(description="Only tags of this store: an id or a tag.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List tags, sorted by name."""
    page = await services.stores.tags(store=store, limit=min(limit, services.settings.max_page_items), cursor=cursor)
    return page_answer(request, page, encode_items(page.items, Tag))


@endpoint(
    router,
    "GET /v1/tags/{tag}",
    READ,
    answer=Tag,
    fails=(404,),
    cached=True,
    responses={200: {"headers": _ETAG}},
    summary="Get a tag",
)
async def get_tag(request: Request, services: Given, tag: str) -> Response:
    """Get the store that a tag points at."""
    found = await services.stores.tag(tag)
    return json_answer(request, encode_fact(found, Tag), etag=EntityTag.of(found.etag))


@endpoint(
    router,
    "PUT /v1/tags/{tag}",
    Rule(Scope.WRITE, TagPlace.PATH),
    answer=Tag,
    fails=(403, 404, 409, 412, 413, 415, 422, 507),
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
    services: Given,
    tag: str,
    body: PutTag,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Set a tag; with conditions, only if it has not changed."""
    if not is_id(body.store):  # the answer tells which store another tag, or the beginning of an id, stands for
        services.require(Scope.READ)
    expected, absent = await _expected(services, tag, if_match, if_none_match)
    try:
        found, created = await services.stores.put_tag(tag, body.store, if_match=expected, if_none_match=absent)
    except Conflict as error:
        if expected is None and not absent:
            raise
        raise _failed(error.message) from error
    headers = {"location": url_of(request.scope, f"/v1/tags/{tag}")} if created else {}
    return json_answer(
        request, encode_fact(found, Tag), status=201 if created else 200, headers=headers, etag=EntityTag.of(found.etag)
    )


@endpoint(
    router,
    "DELETE /v1/tags/{tag}",
    Rule(Scope.DELETE, TagPlace.PATH),
    status=204,
    fails=(404, 409, 412, 422),
    summary="Remove a tag",
)
async def delete_tag(
    services: Given, tag: str, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Remove a tag; its store is kept."""
    expected, _ = await _expected(services, tag, if_match, if_none_match)
    try:
        await services.stores.delete_tag(tag, if_match=expected)
    except Conflict as error:
        if expected is None:
            raise
        raise _failed(error.message) from error
    return Response(status_code=204)


async def _expected(
    services: Services, name: str, if_match: str | None, if_none_match: str | None
) -> tuple[str | None, bool]:
    """Entity tag to compare when writing (or None), and True if there must be no tag; 412 if too late."""
    if if_match is None and if_none_match is None:
        return None, False
    found = await _find(services, name)
    current = None if found is None else Validators(EntityTag.of(found.etag))
    conditions = Preconditions(if_match=if_match, if_none_match=if_none_match)
    if evaluate(conditions, current, reads=False) is not Verdict.PROCEED:
        raise _failed(
            "The tag has changed, or does not meet the condition in If-Match or If-None-Match",
            found if services.may(Scope.READ) else None,
        )
    return (None, True) if found is None else (found.etag, False)


async def _find(services: Services, name: str) -> StoredTag | None:
    try:
        return await services.stores.tag(name)
    except NotFound:
        return None


def _failed(detail: str, found: StoredTag | None = None) -> HttpProblem:
    if found is None:
        return HttpProblem(PRECONDITION, detail)
    return HttpProblem(PRECONDITION, detail, etag=EntityTag.of(found.etag).opaque, store=found.store)

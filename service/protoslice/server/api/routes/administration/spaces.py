"""Spaces: listing and creating."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.spaces import Quota, SpaceRow
from protoslice.errors import NotFound
from protoslice.facts import Space
from protoslice.server.api.encoding import encode_fact, encode_items
from protoslice.server.api.endpoints import Condition, Current, conditional, endpoint
from protoslice.server.api.json_answers import Cursor, Limit, etag_of, json_answer, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.request_bodies import ChangeSpace, PutSpace
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.rules import Rule
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given, Services
from protoslice.stores.spaces import Spaces

router = GuardedRouter(tags=["spaces"])


@endpoint(
    router,
    "GET /v1/spaces",
    Rule(Scope.READ, everywhere=True),
    answer=PageOf[Space],
    cached=True,
    summary="List spaces",
)
async def list_spaces(
    request: Request,
    services: Given,
    cursor: Cursor,
    limit: Limit = 100,
) -> Response:
    """List spaces with their usage and quotas, the default space first."""
    spaces = _spaces(services)
    page = await spaces.page(limit=min(limit, _MOST), cursor=cursor)
    items = await asyncio.to_thread(lambda: encode_items(map(_fact, page.items)))
    return page_answer(request, page, items)


async def _current(request: Request, services: Services) -> Current:
    usage = await _spaces(services).usage(request.path_params["space"])
    return Current(etag_of(encode_fact(_fact(usage))), usage.version)


Unchanged = Annotated[Condition, conditional(_current)]


@endpoint(
    router,
    "GET /v1/spaces/{space}",
    Rule(Scope.READ, everywhere=True),
    answer=Space,
    fails=(404,),
    cached=True,
    summary="Get a space",
)
async def get_space(request: Request, services: Given, space: str) -> Response:
    """Return a space with its usage and quota. Its entity tag changes with both."""
    return json_answer(request, _fact(await _spaces(services).usage(space)))


@endpoint(
    router,
    "PUT /v1/spaces/{space}",
    Rule(Scope.ADMIN, everywhere=True),
    answer=Space,
    fails=(403, 413, 422, 507),
    responses={
        200: {"description": "The space already existed."},
        201: {"description": "The space was created.", "model": Space},
    },
    summary="Create a space, or set its quota",
)
async def create_space(
    request: Request, services: Given, space: str, condition: Unchanged, body: PutSpace | None = None
) -> Response:
    """Create a space with its own stores, tags and schemas, invisible to other spaces.

    A body sets the quota, also of an existing space; without a body the quota is unchanged.
    """
    spaces = _spaces(services)
    quota = (
        None
        if body is None
        else Quota(
            stored_bytes=body.quota_bytes,
            stores=body.quota_stores,
            open_uploads=body.quota_open_uploads,
            requests=body.quota_requests,
        )
    )
    created = await spaces.create(space, quota, if_match=condition.version, if_none_match=condition.absent)
    return json_answer(request, _fact(await spaces.usage(space)), status=201 if created else 200)


@endpoint(
    router,
    "PATCH /v1/spaces/{space}",
    Rule(Scope.ADMIN, everywhere=True),
    answer=Space,
    fails=(400, 403, 404, 413, 415, 422, 507),
    summary="Change the quota of a space",
)
async def change_space(
    request: Request, services: Given, space: str, body: ChangeSpace, condition: Unchanged
) -> Response:
    """Change some limits of a space in one step, and leave the others."""
    spaces = _spaces(services)
    await spaces.change_limits(space, body.model_dump(exclude_unset=True), if_match=condition.version)
    return json_answer(request, _fact(await spaces.usage(space)))


@endpoint(
    router,
    "DELETE /v1/spaces/{space}",
    Rule(Scope.ADMIN, everywhere=True),
    status=204,
    fails=(403, 404, 409, 422),
    summary="Remove a space",
)
async def remove_space(
    services: Given,
    space: str,
    condition: Unchanged,
    with_stores: Annotated[bool, Query(description="Remove all stores and names in it too.")] = False,
) -> Response:
    """Remove a space, which has to be empty unless its stores are removed too.

    Nothing in it can be read or changed from then on. What it has is deleted a day later, after which its name is free;
    until then an operator can restore it. An empty space is deleted within a minute.
    """
    await _spaces(services).remove(space, with_stores=with_stores, if_match=condition.version)
    return Response(status_code=204)


_MOST = 100
"""Spaces of a page."""


def _fact(usage: SpaceRow) -> Space:
    quota, used = usage.quota, usage.held
    return Space(
        name=usage.name,
        stored_bytes=used.stored_bytes,
        stores=used.stores,
        quota_bytes=quota.stored_bytes or 0,
        quota_stores=quota.stores or 0,
        quota_open_uploads=quota.open_uploads or 0,
        quota_requests=quota.requests or 0,
    )


def _spaces(services: Services) -> Spaces:
    if services.spaces is None:
        raise NotFound("The service is starting or shutting down")
    return services.spaces

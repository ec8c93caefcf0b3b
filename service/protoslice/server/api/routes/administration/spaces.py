"""Spaces: listing and creating."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from protoslice.errors import NotFound
from protoslice.server.api.documentation.openapi_fragments import SEEN, problems
from protoslice.server.api.json_answers import json_answer, page_answer
from protoslice.server.api.models import PageModel
from protoslice.server.middleware.guarded_route import GuardedRoute
from protoslice.server.services import Given, Services
from protoslice.stores.spaces import Spaces

router = APIRouter(tags=["spaces"], route_class=GuardedRoute)


class SpaceModel(BaseModel):
    """Stores, tags and schemas behind a wall."""

    name: str = Field(description="a-z, 0-9 and -, 63 at most; its calls are those below `/spaces/{name}`.")


@router.get(
    "/v1/spaces",
    operation_id="list_spaces",
    response_model=PageModel[SpaceModel],
    responses={304: SEEN, **problems(412)},
    summary="A page of spaces",
)
async def list_spaces(
    request: Request,
    services: Given,
    limit: Annotated[int, Query(ge=1, description="At most so many; the service may give fewer.")] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """List spaces, the default one first."""
    page = await _spaces(services).page(limit=min(limit, _MOST), cursor=cursor)
    return page_answer(request, page, [{"name": name} for name in page.items])


@router.put(
    "/v1/spaces/{space}",
    operation_id="create_space",
    response_model=SpaceModel,
    responses={
        200: {"description": "The space existed already."},
        201: {"description": "The space is new.", "model": SpaceModel},
        **problems(422, 507),
    },
    summary="Create a space",
)
async def create_space(request: Request, services: Given, space: str) -> Response:
    """Create a space: stores, tags and schemas of its own, which no other space knows of."""
    created = await _spaces(services).create(space)
    return json_answer(request, {"name": space}, status=201 if created else 200)


_MOST = 100
"""Spaces of a page, each of which costs a listing."""


def _spaces(services: Services) -> Spaces:
    if services.spaces is None:
        raise NotFound("the service is starting or has ended")
    return services.spaces

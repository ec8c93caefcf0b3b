"""Repositories: what clients of model registries have filled."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.facts import RepositorySummary, RepositoryVersion
from protoslice.server.api.json_answers import Cursor, Limit, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.auth.permissions import READ
from protoslice.server.registry_names import RepositoryPages
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given

router = RouteGroup(tags=["repositories"])

PAGE = 100
"""Repositories or versions in a page at most: for each some records are read."""


@endpoint(
    router,
    "GET /v1/repositories",
    READ,
    answer=PageOf[RepositorySummary],
    cached=True,
    experimental=True,
    summary="List repositories",
)
async def list_repositories(
    request: Request,
    services: Given,
    cursor: Cursor,
    prefix: Annotated[str, Query(description="Beginning of the name.")] = "",
    limit: Limit = 50,
) -> Response:
    """List Hugging Face repositories, then OCI-only repositories, then folders of MLflow artifacts."""
    page = await RepositoryPages(services.stores).page(prefix, limit=min(limit, PAGE), cursor=cursor)
    return page_answer(request, page)


@endpoint(
    router,
    "GET /v1/repositories/{name:path}",
    READ,
    answer=PageOf[RepositoryVersion],
    cached=True,
    experimental=True,
    summary="List the branches and tags of a repository",
)
async def list_versions(request: Request, services: Given, cursor: Cursor, name: str, limit: Limit = 50) -> Response:
    """List the branches and tags of a repository, except those without files.

    MLflow folders have no branches or tags.
    """
    page = await RepositoryPages(services.stores).versions(name, limit=min(limit, PAGE), cursor=cursor)
    return page_answer(request, page)

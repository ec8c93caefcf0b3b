"""Stores made of finished uploads."""

from __future__ import annotations

from contextlib import aclosing

from fastapi import Request
from starlette.responses import Response

from protoslice.server.api.documentation.openapi_fragments import header
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import made_answer
from protoslice.server.api.models import CreatedStore
from protoslice.server.api.request_bodies import Assemble
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.rules import Rule, TagPlace
from protoslice.server.bodies.ingest import ingest_archive, ingest_recipe, upload_slot
from protoslice.server.bodies.tus import answering, joining, upload_id
from protoslice.server.context import context_of
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given, Services
from protoslice.stores import Created, IngestRequest

router = GuardedRouter(tags=["uploads"])


@endpoint(
    router,
    "POST /v1/stores/assemble",
    Rule(Scope.WRITE, TagPlace.BODY),
    answer=CreatedStore,
    status=201,
    fails=(403, 404, 409, 410, 413, 415, 422, 507),
    responses={
        200: {"description": "The store already existed.", "model": CreatedStore},
        201: {"description": "The store was created.", "headers": {"location": header("URL of the store.")}},
    },
    experimental=True,
    summary="Create a store from finished uploads",
    tags=["stores"],
)
@answering
async def assemble_store(request: Request, services: Given, body: Assemble) -> Response:
    """Create a store from uploaded files (each from one or more uploads), a recipe, or an archive."""
    services.allow_tags(body.tags)
    async with upload_slot(services, request):
        made = await joining(_assembled(services, body, body.request()))
    context_of(request.scope).store = made.store.id
    return await made_answer(request, services.stores, made)


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

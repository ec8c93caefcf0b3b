"""Stores made of drafts: folders of files that other protocols wrote one by one."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from starlette.responses import Response

from protoslice.mlflow import MlflowArtifacts
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import made_answer
from protoslice.server.api.models import CreatedStore
from protoslice.server.api.routes.intake import CREATED
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.rules import Rule, TagPlace
from protoslice.server.bodies.ingest import upload_slot
from protoslice.server.bodies.new_store import Report, StoreQuery
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given

router = GuardedRouter(tags=["stores"])


@endpoint(
    router,
    "POST /v1/drafts/{name:path}",
    Rule(Scope.WRITE, TagPlace.QUERY, reads=True),
    answer=CreatedStore,
    status=201,
    responses=CREATED,
    experimental=True,
    summary="Create a store from a folder of MLflow artifacts",
)
async def store_draft(
    request: Request, services: Given, name: str, options: StoreQuery, report: Report = False
) -> Response:
    """Create a store from the current files of a folder, without copying large files."""
    wanted = replace(options.request(), report=report)
    async with upload_slot(services, request):
        made = await MlflowArtifacts(services.stores).store(name.strip("/"), wanted)
    return await made_answer(request, services.stores, made)

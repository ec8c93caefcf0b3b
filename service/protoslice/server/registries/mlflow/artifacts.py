"""Routes of single artifacts: write, read, list and remove."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.responses import Response

from protoslice.catalog.kept_files import KeptFile
from protoslice.errors import NotFound
from protoslice.mlflow import MlflowArtifacts, NoArtifact
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import OPEN, READ, READ_SIGNED, REPOSITORY_DELETE, REPOSITORY_WRITE
from protoslice.server.auth.places import url_of
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.headers import Headers
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.mlflow.answers import BASE, ArtifactPath, done, render_mlflow
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given, Services
from protoslice.serving import Representation
from protoslice.serving.representation import Head

router = RouteGroup(render=render_mlflow, strict=False, include_in_schema=False)


async def _artifacts(services: Given) -> MlflowArtifacts:
    return services.mlflow


Artifacts = Annotated[MlflowArtifacts, Depends(_artifacts)]


@endpoint(router, "GET /api/3.0/mlflow/server-info", OPEN)
async def get_server_info() -> Response:
    """Announce transfers in parts, which clients then use without being told to."""
    return JsonAnswer({"multipart_uploads_enabled": True, "multipart_downloads_enabled": True})


@endpoint(router, "GET /api/2.0/mlflow-artifacts/artifacts", READ)
async def list_artifacts(services: Given, artifacts: Artifacts, path: str = "") -> Response:
    """Files and folders directly in a folder, by their base names; none where there is no folder."""
    entries = await artifacts.table.entries(path.strip("/"))

    def listed() -> dict[str, Any]:
        return {"files": [_entry_json(name, size) for name, size in entries]}

    return JsonAnswer(await services.stores.worker.sized(200 * len(entries), listed))


def _entry_json(name: str, size: int | None) -> dict[str, Any]:
    return {"path": name, "is_dir": True} if size is None else {"path": name, "is_dir": False, "file_size": str(size)}


@endpoint(router, "PUT /api/2.0/mlflow-artifacts/artifacts/{name:path}", REPOSITORY_WRITE, body=UPLOAD_PART)
async def put_artifact(request: Request, services: Given, artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Write an artifact, or a new version of one."""
    async with upload_slot(services, request):
        file = await artifacts.put(name, body_stream(request.receive))
    context_of(request.scope).store = file.store
    return done()


@endpoint(router, "GET /api/2.0/mlflow-artifacts/artifacts/{name:path}", READ_SIGNED)
async def get_artifact(request: Request, services: Given, artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Get an artifact, whole or by range."""
    return await _answered(request, services, name, await artifacts.table.get(name))


@endpoint(router, "DELETE /api/2.0/mlflow-artifacts/artifacts/{name:path}", REPOSITORY_DELETE)
async def delete_artifact(artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Remove an artifact, or a folder of them; one that does not exist is removed, as MLflow has it."""
    with suppress(NoArtifact):
        await artifacts.table.remove(name)
    return done()


async def _answered(request: Request, services: Services, name: str, file: KeptFile) -> Response:
    """The bytes of a file: those in its record, or those of a store, which the answer names."""
    if file.store is None or file.path is None:
        data = file.data or b""
        head = Head(hashlib.sha256(data).hexdigest(), name.rpartition("/")[2], "application/octet-stream")
        rope = Representation.of_bytes(data, head)
        return RepresentationResponse(rope, location=url_of(request.scope, f"{BASE}/artifacts/{quote(name)}"))
    context_of(request.scope).store = file.store
    try:
        rope = (await services.stores.view(file.store)).file(file.path)
    except NotFound:
        raise NotFound(f"The store of artifact {name!r} was removed: log the artifact again") from None
    told: Headers = [(b"protoslice-store", file.store.encode())]
    return RepresentationResponse(
        rope, told, location=url_of(request.scope, f"/v1/stores/{file.store}/files/{quote(file.path)}")
    )

"""Routes of transfers in parts, in both directions."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from protoslice.json_text import encode_json
from protoslice.mlflow import MOST_PARTS, new_session
from protoslice.server.auth.permissions import READ, REPOSITORY_UPLOAD, REPOSITORY_WRITE
from protoslice.server.auth.places import absolute_url
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.headers import read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.mlflow.answers import BASE, ArtifactPath, done, render_mlflow
from protoslice.server.registries.mlflow.artifacts import Artifacts
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given, Services

router = RouteGroup(render=render_mlflow, strict=False, include_in_schema=False)

_UNKEPT: Final = {"cache-control": "no-store"}
"""Answers that hold a permission."""
Session = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class WantedParts(BaseModel):
    """Upload of a file in parts; the path is the client's own, of which the base name counts."""

    path: str = Field(max_length=4096)
    num_parts: int = Field(default=1, ge=1, le=MOST_PARTS)


class SentPart(BaseModel):
    """A part that was sent, and what its answer called it."""

    part_number: int = Field(ge=1, le=MOST_PARTS)
    etag: str = Field(max_length=200)


class SentParts(BaseModel):
    """End of an upload in parts."""

    path: str = Field(max_length=4096)
    upload_id: Session
    parts: list[SentPart] = Field(default=[], max_length=MOST_PARTS)


@endpoint(router, "GET /api/2.0/mlflow-artifacts/presigned/{name:path}", READ)
async def plan_download(request: Request, services: Given, artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Tell where an artifact is read by range, and with which headers."""
    file, signed = await artifacts.table.get(name), await services.signing()
    url = signed("GET", _absolute(request, f"{BASE}/artifacts/{request.path_params['name']}"))
    return JsonAnswer({"url": url, "headers": _permission(request, services), "file_size": file.size}, headers=_UNKEPT)


@endpoint(router, "POST /api/2.0/mlflow-artifacts/mpu/create/{name:path}", REPOSITORY_WRITE)
async def begin_upload(request: Request, services: Given, body: WantedParts) -> Response:
    """Begin the upload of a file in parts; nothing is kept before the first part comes."""
    session = new_session()
    at = _absolute(request, f"{BASE}/parts/{session}/{request.path_params['name']}")
    signed, headers = await services.signing(), _permission(request, services)

    def planned() -> bytes:
        parts = [
            {"url": signed("PUT", f"{at}?number={number}"), "part_number": number, "headers": headers}
            for number in range(1, body.num_parts + 1)
        ]
        return encode_json({"upload_id": session, "credentials": parts})

    told = await services.stores.worker.sized(500 * body.num_parts, planned)
    return Response(told, headers=_UNKEPT, media_type="application/json")


@endpoint(router, "PUT /api/2.0/mlflow-artifacts/parts/{session}/{name:path}", REPOSITORY_UPLOAD, body=UPLOAD_PART)
async def put_part(
    request: Request, services: Given, artifacts: Artifacts, session: Session, name: ArtifactPath, number: int
) -> Response:
    """Take a part; its entity tag names it."""
    async with upload_slot(services, request):
        client = pseudonym(context_of(request.scope).key)
        part = await artifacts.put_part(session, number, body_stream(request.receive), client)
    return JsonAnswer({}, headers={"etag": f'"{part}"'})


@endpoint(router, "POST /api/2.0/mlflow-artifacts/mpu/complete/{name:path}", REPOSITORY_WRITE)
async def finish_upload(
    request: Request, services: Given, artifacts: Artifacts, name: ArtifactPath, body: SentParts
) -> Response:
    """Make the file of its parts."""
    async with upload_slot(services, request):
        parts = [(part.part_number, part.etag.strip('"')) for part in body.parts]
        file = await artifacts.join(_target(name, body.path), body.upload_id, parts)
    context_of(request.scope).store = file.store
    return done()


@endpoint(router, "POST /api/2.0/mlflow-artifacts/mpu/abort/{name:path}", REPOSITORY_WRITE)
async def end_upload() -> Response:
    """Give up an upload; its parts expire like any other upload."""
    return done()


def _target(folder: str, local: str) -> str:
    """Path in a folder of the file at a client's own path, which may be one of Windows."""
    base = local.replace("\\", "/").rpartition("/")[2]
    return f"{folder}/{base}"


def _absolute(request: Request, path: str) -> str:
    return absolute_url(request.scope, path)


def _permission(request: Request, services: Services) -> dict[str, str]:
    """Headers for the URLs of an answer; none where they are signed.

    Clients send no credential of their own to these URLs, and a proxy before an open service may want one.
    """
    found = None if services.authenticator.closed else read_fields(request.scope).get(b"authorization")
    return {} if found is None else {"Authorization": found}

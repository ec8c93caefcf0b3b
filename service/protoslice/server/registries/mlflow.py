"""Routes of MLflow's artifact proxy, which keeps artifacts in stores.

The token is sent as Bearer, or as the password of Basic.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import Depends, Request
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response
from starlette.types import Scope

from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import NoArtifact
from protoslice.errors import NotFound
from protoslice.json_text import encode_json
from protoslice.mlflow import MOST_PARTS, MlflowArtifacts, new_session
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import (
    OPEN,
    READ,
    READ_SIGNED,
    REPOSITORY_DELETE,
    REPOSITORY_UPLOAD,
    REPOSITORY_WRITE,
)
from protoslice.server.auth.spaces import absolute_url, url_of
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.headers import Headers, read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.problems import HttpProblem
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.request.failures import render_body
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.serving import Representation
from protoslice.serving.representation import Head

BASE: Final = "/api/2.0/mlflow-artifacts"
ArtifactPath = Annotated[str, AfterValidator(lambda path: unquote(path).rstrip("/"))]
"""The path of an artifact or a folder. Clients end the path of a whole run with a slash."""
_CODES: Final = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_CONFLICT",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}
_UNKEPT: Final = {"cache-control": "no-store"}
"""The headers of answers that contain a permission. No cache may keep such an answer."""
Session = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


def render_mlflow(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the response with the code and message that MLflow shows."""
    status = failure.problem.status
    code = _CODES.get(status, "BAD_REQUEST" if status < 500 else "INTERNAL_ERROR")
    return render_body(failure, {"error_code": code, "message": failure.detail})


router = RouteGroup(render=render_mlflow, strict=False, include_in_schema=False)


async def _artifacts(services: Services) -> MlflowArtifacts:
    return services.mlflow


Artifacts = Annotated[MlflowArtifacts, Depends(_artifacts)]


@endpoint(router, "GET /api/3.0/mlflow/server-info", OPEN)
async def get_server_info() -> Response:
    """Announce transfers in parts. Clients then send files in parts by default."""
    return JsonAnswer({"multipart_uploads_enabled": True, "multipart_downloads_enabled": True})


@endpoint(router, "GET /api/2.0/mlflow-artifacts/artifacts", READ)
async def list_artifacts(services: Services, artifacts: Artifacts, path: str = "") -> Response:
    """Return the names of the files and folders directly in a folder. Return none if the folder does not exist."""
    entries = await artifacts.table.entries(path.strip("/"))

    def listed() -> dict[str, Any]:
        return {"files": [_entry_json(name, size) for name, size in entries]}

    return JsonAnswer(await services.stores.worker.run_if_large(200 * len(entries), listed))


def _entry_json(name: str, size: int | None) -> dict[str, Any]:
    return {"path": name, "is_dir": True} if size is None else {"path": name, "is_dir": False, "file_size": str(size)}


@endpoint(router, "PUT /api/2.0/mlflow-artifacts/artifacts/{name:path}", REPOSITORY_WRITE, body=UPLOAD_PART)
async def put_artifact(request: Request, services: Services, artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Write an artifact, or a new version of an existing artifact."""
    async with upload_slot(services, request):
        file = await artifacts.put(name, body_stream(request.receive))
    context_of(request.scope).store = file.store
    return JsonAnswer({})


@endpoint(router, "GET /api/2.0/mlflow-artifacts/artifacts/{name:path}", READ_SIGNED)
async def get_artifact(request: Request, services: Services, artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Return an artifact, whole or by range."""
    return await _answered(request, services, name, await artifacts.table.get(name))


@endpoint(router, "DELETE /api/2.0/mlflow-artifacts/artifacts/{name:path}", REPOSITORY_DELETE)
async def delete_artifact(artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Remove an artifact or a folder of artifacts. As in MLflow, a missing artifact is not an error."""
    with suppress(NoArtifact):
        await artifacts.table.remove(name)
    return JsonAnswer({})


async def _answered(request: Request, services: Services, name: str, file: RepositoryFile) -> Response:
    """Return the bytes of a file, from the file's record or from a store.

    If a store has the bytes, a header names the store.
    """
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
    headers: Headers = [(b"protoslice-store", file.store.encode())]
    return RepresentationResponse(
        rope, headers, location=url_of(request.scope, f"/v1/stores/{file.store}/files/{quote(file.path)}")
    )


class WantedParts(BaseModel):
    """An upload of a file in parts.

    Only the base name of `path` counts, because it is a path on the client's machine.
    """

    path: str = Field(max_length=4096)
    num_parts: int = Field(default=1, ge=1, le=MOST_PARTS)


class SentPart(BaseModel):
    """A part that was sent, and its name in the response to this part."""

    part_number: int = Field(ge=1, le=MOST_PARTS)
    etag: str = Field(max_length=200)


class SentParts(BaseModel):
    """The end of an upload in parts."""

    path: str = Field(max_length=4096)
    upload_id: Session
    parts: list[SentPart] = Field(default=[], max_length=MOST_PARTS)


@endpoint(router, "GET /api/2.0/mlflow-artifacts/presigned/{name:path}", READ)
async def plan_download(request: Request, services: Services, artifacts: Artifacts, name: ArtifactPath) -> Response:
    """Return the URL from which an artifact is read by range, and the headers to send to this URL."""
    file, signed = await artifacts.table.get(name), await services.signing()
    url = signed("GET", _absolute(request, f"{BASE}/artifacts/{request.path_params['name']}"))
    return JsonAnswer({"url": url, "headers": _permission(request, services), "file_size": file.size}, headers=_UNKEPT)


@endpoint(router, "POST /api/2.0/mlflow-artifacts/mpu/create/{name:path}", REPOSITORY_WRITE)
async def begin_upload(request: Request, services: Services, body: WantedParts) -> Response:
    """Begin the upload of a file in parts. Nothing is stored before the first part arrives."""
    session = new_session()
    at = _absolute(request, f"{BASE}/parts/{session}/{request.path_params['name']}")
    signed, headers = await services.signing(), _permission(request, services)

    def planned() -> bytes:
        parts = [
            {"url": signed("PUT", f"{at}?number={number}"), "part_number": number, "headers": headers}
            for number in range(1, body.num_parts + 1)
        ]
        return encode_json({"upload_id": session, "credentials": parts})

    answer = await services.stores.worker.run_if_large(500 * body.num_parts, planned)
    return Response(answer, headers=_UNKEPT, media_type="application/json")


@endpoint(router, "PUT /api/2.0/mlflow-artifacts/parts/{session}/{name:path}", REPOSITORY_UPLOAD, body=UPLOAD_PART)
async def put_part(
    request: Request, services: Services, artifacts: Artifacts, session: Session, name: ArtifactPath, number: int
) -> Response:
    """Receive a part. The entity tag in the answer names the part."""
    async with upload_slot(services, request):
        client = pseudonym(context_of(request.scope).key)
        part = await artifacts.put_part(session, number, body_stream(request.receive), client)
    return JsonAnswer({}, headers={"etag": f'"{part}"'})


@endpoint(router, "POST /api/2.0/mlflow-artifacts/mpu/complete/{name:path}", REPOSITORY_WRITE)
async def finish_upload(
    request: Request, services: Services, artifacts: Artifacts, name: ArtifactPath, body: SentParts
) -> Response:
    """Make the file from its parts."""
    async with upload_slot(services, request):
        parts = [(part.part_number, part.etag.strip('"')) for part in body.parts]
        file = await artifacts.join(_target(name, body.path), body.upload_id, parts)
    context_of(request.scope).store = file.store
    return JsonAnswer({})


@endpoint(router, "POST /api/2.0/mlflow-artifacts/mpu/abort/{name:path}", REPOSITORY_WRITE)
async def end_upload() -> Response:
    """Cancel an upload. Its parts expire like any other upload."""
    return JsonAnswer({})


def _target(folder: str, local: str) -> str:
    """Return the path in a folder for a client's local file, whose path may be a Windows path."""
    base = local.replace("\\", "/").rpartition("/")[2]
    return f"{folder}/{base}"


def _absolute(request: Request, path: str) -> str:
    return absolute_url(request.scope, path)


def _permission(request: Request, services: Services) -> dict[str, str]:
    """Return the headers to send to the URLs in a response. Return none if the URLs are signed.

    Without these headers, clients send no credentials to the URLs. A proxy in front of a service without tokens may
    require credentials.
    """
    found = None if services.state.authenticator.closed else read_fields(request.scope).get(b"authorization")
    return {} if found is None else {"Authorization": found}

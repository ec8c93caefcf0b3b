"""What the routes of the OCI API share: the repository that a path names, answers, and failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.responses import Response
from starlette.types import Scope

from protoslice.artifacts import ArtifactFault, ArtifactRepository, Digest, RepositoryName
from protoslice.artifacts.exports import ExportedRepository
from protoslice.catalog.syntax import listed_name
from protoslice.server.auth.spaces import absolute_url
from protoslice.server.http.headers import Fields, read_fields
from protoslice.server.problems import BAD_REQUEST, BUSY, RANGE, HttpProblem
from protoslice.server.request.errors import render_body
from protoslice.server.services import Given

_CODES: Final = {
    401: "UNAUTHORIZED",
    403: "DENIED",
    404: "NAME_UNKNOWN",
    413: "SIZE_INVALID",
    429: "TOOMANYREQUESTS",
}
"""Codes by status, of errors that are not about an artifact."""
_CONTENT_RANGE: Final = re.compile(r"(\d{1,19})-(\d{1,19})")
_BACKWARD: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})")


def is_ollama(request: Request) -> bool:
    """True for a request of Ollama, which reads other manifests and names than clients of OCI."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("ollama/")


def is_llama(request: Request) -> bool:
    """Return True for a request of llama.cpp, which asks for names of files where others ask for manifests."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("llama-cpp")


async def _repository(request: Request, name: str, services: Given) -> ArtifactRepository:
    return ArtifactRepository(services.stores, _name(request, name), services.uploads)


def _name(request: Request, name: str) -> RepositoryName:
    """The name; with capitals, Ollama and llama.cpp get manifests, and every program gets blobs."""
    reads = request.method == "GET" and ("digest" in request.path_params or is_ollama(request) or is_llama(request))
    return listed_name(name) if reads else RepositoryName(name)


Repository = Annotated[ArtifactRepository, Depends(_repository)]


async def _exported(repository: Repository, services: Given) -> ExportedRepository:
    return ExportedRepository(services.stores, repository)


Exported = Annotated[ExportedRepository, Depends(_exported)]


def begun(scope: Scope, name: RepositoryName, upload: str, size: int, *, status: int) -> Response:
    """Answer that an upload has `size` bytes by now."""
    location = absolute_url(scope, f"/v2/{name.text}/blobs/uploads/{upload}")
    headers = {"location": location, "range": f"0-{max(0, size - 1)}", "docker-upload-uuid": upload}
    return Response(status_code=status, headers={**headers, "cache-control": "no-store"})


def made(location: str, digest: Digest, headers: Mapping[str, str] | None = None) -> Response:
    """Answer that a blob or a manifest is there."""
    told = {"location": location, "docker-content-digest": digest.text, **(headers or {})}
    return Response(status_code=201, headers=told)


def blob_headers(location: str, digest: Digest, size: int) -> dict[str, str]:
    """Headers of a blob, for HEAD."""
    return {
        "location": location,
        "docker-content-digest": digest.text,
        "content-length": str(size),
        "content-type": "application/octet-stream",
        "accept-ranges": "bytes",
        "etag": f'"{digest.text}"',
    }


def check_place(fields: Fields, offset: int) -> None:
    """Raise 416 unless Content-Range, if given, goes on from `offset` and has the length of the body."""
    said = fields.get(b"content-range")
    if said is None:
        return
    found = _CONTENT_RANGE.fullmatch(said.strip().removeprefix("bytes ").partition("/")[0])
    if found is None:
        raise HttpProblem(BAD_REQUEST, "Invalid Content-Range: use <first byte>-<last byte>")
    first, last = int(found[1]), int(found[2])
    length = fields.get(b"content-length")
    if first != offset or last < first or (length is not None and int(length) != last - first + 1):
        headers = {"range": f"0-{max(0, offset - 1)}"}
        raise HttpProblem(
            RANGE,
            f"The range does not match the upload: it must start at byte {offset} and match the body's length",
            headers=headers,
        )


def refuse_backward(fields: Fields, size: int) -> None:
    """Raise 416 for a range that ends before it begins, which HTTP ignores and this API refuses."""
    found = _BACKWARD.fullmatch(fields.get(b"range", ""))
    if found is not None and int(found[2]) < int(found[1]):
        headers = {"content-range": f"bytes */{size}"}
        raise HttpProblem(RANGE, "The range ends before it starts", headers=headers)


def render_oci(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the list of one error, its code and its message; the specification has no word for a busy service."""
    status = 429 if failure.problem is BUSY else failure.problem.status
    code = error.code if isinstance(error, ArtifactFault) else _CODES.get(status, "UNSUPPORTED")
    return render_body(failure, {"errors": [{"code": code, "message": failure.detail}]}, status=status)

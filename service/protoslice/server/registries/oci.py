"""Routes of the OCI distribution API, for oras, skopeo, docker and others, below `/v2/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from starlette.responses import Response
from starlette.types import Scope

from protoslice.artifacts import (
    MAX_MANIFEST_BYTES,
    ArtifactFault,
    ArtifactRepository,
    Digest,
    NameInvalid,
    RepositoryName,
    UploadInvalid,
    repository_names,
)
from protoslice.artifacts.exports import ExportedRepository
from protoslice.artifacts.manifests import INDEX, index_of
from protoslice.catalog.paging import MAX_PAGE_ITEMS
from protoslice.catalog.syntax import listed_name
from protoslice.server.api.json_answers import next_page
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import OCI_WRITE, READ, REPOSITORY_DELETE
from protoslice.server.auth.spaces import absolute_url
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap, media_type_of, read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.problems import BAD_REQUEST, BUSY, RANGE, HttpProblem
from protoslice.server.request.body import UPLOAD_PART, BodyLimits
from protoslice.server.request.clients import pseudonym
from protoslice.server.request.failures import render_body
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.uploads import Body

_CODES: Final = {
    401: "UNAUTHORIZED",
    403: "DENIED",
    404: "NAME_UNKNOWN",
    413: "SIZE_INVALID",
    429: "TOOMANYREQUESTS",
}
"""The codes of errors that do not concern an artifact, keyed by status."""
_CONTENT_RANGE: Final = re.compile(r"(\d{1,19})-(\d{1,19})")
_BACKWARD: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})")


def is_ollama(request: Request) -> bool:
    """Return True if a request is from Ollama, whose manifests and names differ from OCI's manifests and names."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("ollama/")


def is_llama(request: Request) -> bool:
    """Return True if a request is from llama.cpp, which expects names of files instead of manifests."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("llama-cpp")


async def _repository(request: Request, name: str, services: Services) -> ArtifactRepository:
    return ArtifactRepository(services.stores, _name(request, name), services.uploads)


def _name(request: Request, name: str) -> RepositoryName:
    """Return the repository's name.

    The name may have capitals in GETs of blobs, and in GETs by Ollama and llama.cpp.
    """
    reads = request.method == "GET" and ("digest" in request.path_params or is_ollama(request) or is_llama(request))
    return listed_name(name) if reads else RepositoryName(name)


Repository = Annotated[ArtifactRepository, Depends(_repository)]


async def _exported(repository: Repository, services: Services) -> ExportedRepository:
    return ExportedRepository(services.stores, repository)


Exported = Annotated[ExportedRepository, Depends(_exported)]


def begun(scope: Scope, name: RepositoryName, upload: str, size: int, *, status: int) -> Response:
    """Return the response which says that an upload has `size` bytes so far."""
    location = absolute_url(scope, f"/v2/{name.text}/blobs/uploads/{upload}")
    headers = {"location": location, "range": f"0-{max(0, size - 1)}", "docker-upload-uuid": upload}
    return Response(status_code=status, headers={**headers, "cache-control": "no-store"})


def made(location: str, digest: Digest, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response which says that a blob or a manifest now exists."""
    told = {"location": location, "docker-content-digest": digest.text, **(headers or {})}
    return Response(status_code=201, headers=told)


def blob_headers(location: str, digest: Digest, size: int) -> dict[str, str]:
    """Return the headers that describe a blob, for HEAD."""
    return {
        "location": location,
        "docker-content-digest": digest.text,
        "content-length": str(size),
        "content-type": "application/octet-stream",
        "accept-ranges": "bytes",
        "etag": f'"{digest.text}"',
    }


def check_place(fields: HeaderMap, offset: int) -> None:
    """Check Content-Range, if it is sent. Raise 416 unless it begins at `offset` and has the length of the body."""
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


def refuse_backward(fields: HeaderMap, size: int) -> None:
    """Raise 416 for a range that ends before its start. HTTP ignores such a range, but this API refuses it."""
    found = _BACKWARD.fullmatch(fields.get(b"range", ""))
    if found is not None and int(found[2]) < int(found[1]):
        headers = {"content-range": f"bytes */{size}"}
        raise HttpProblem(RANGE, "The range ends before it starts", headers=headers)


def render_oci(scope: Scope, error: Exception, failure: HttpProblem) -> Response:
    """Return the response to a failed request: a list of one error with its code and message.

    The specification has no code for a busy service, so the status is 429 in this case.
    """
    status = 429 if failure.problem is BUSY else failure.problem.status
    code = error.code if isinstance(error, ArtifactFault) else _CODES.get(status, "UNSUPPORTED")
    return render_body(failure, {"errors": [{"code": code, "message": failure.detail}]}, status=status)


router = RouteGroup(render=render_oci, strict=False, include_in_schema=False)

MANIFEST_BODY = BodyLimits(lambda _: MAX_MANIFEST_BYTES, counts_for_quota=True)
REFERRERS = 100
"""The maximum number of referrers in a page. Each referrer is read with a separate request."""
NO_TAGS: list[str] = []
Page = Annotated[int | None, Query(ge=0)]


@endpoint(router, "GET /v2/", READ)
async def get_base() -> Response:
    """Confirm that the API exists."""
    return _json({}, {"docker-distribution-api-version": "registry/2.0"})


@endpoint(router, "GET /v2/_catalog", READ)
async def get_catalog(request: Request, services: Services, n: Page = None, last: str | None = None) -> Response:
    """List the names of repositories."""
    limit = _limit(n)
    after = None if last is None else listed_name(last).text
    names, more = await repository_names(services.stores, limit=limit, after=after) if limit else ([], False)
    end = names[-1] if more and names else None
    return _json({"repositories": names}, next_page(request.scope, end, name="last"))


@endpoint(router, "GET /v2/{name:path}/tags/list", READ)
async def list_tags(
    request: Request,
    repository: Repository,
    exported: Exported,
    services: Services,
    n: Page = None,
    last: str | None = None,
) -> Response:
    """List tags, sorted by name."""
    limit = _limit(n)
    tags, more = await exported.tags(limit=limit, after=last) if limit else ([], False)
    end = tags[-1] if more and tags else None
    return _json({"name": repository.name.text, "tags": tags}, next_page(request.scope, end, name="last"))


@endpoint(router, "GET /v2/{name:path}/referrers/{digest}", READ)
async def list_referrers(
    request: Request,
    repository: Repository,
    services: Services,
    digest: str,
    type_: Annotated[str | None, Query(alias="artifactType")] = None,
    last: str | None = None,
) -> Response:
    """Return an index of the manifests whose subject has the digest."""
    subject, after = Digest(digest), None if last is None else Digest(last)
    limit = min(MAX_PAGE_ITEMS, REFERRERS)
    found, end = await repository.referrers(subject, limit=limit, after=after)
    headers = next_page(request.scope, None if end is None else end.text, name="last")
    if type_ is not None:
        headers["oci-filters-applied"] = "artifactType"
    body = await services.stores.worker.run_if_large(sum(map(len, found)), lambda: index_of(found, type_))
    return JsonAnswer(body, headers=headers, media_type=INDEX)


@endpoint(router, "POST /v2/{name:path}/blobs/uploads/", OCI_WRITE, body=UPLOAD_PART)
async def begin_upload(
    request: Request,
    repository: Repository,
    services: Services,
    digest: str | None = None,
    mount: str | None = None,
    source: Annotated[str | None, Query(alias="from")] = None,
) -> Response:
    """Begin the upload of a blob.

    If the request has the blob's digest, receive the whole blob, or copy the blob from another repository.
    """
    if mount is not None and source is not None:
        wanted = Digest(mount)
        with suppress(NameInvalid):  # Ollama sends the invalid name `library/`, so Ollama has to upload
            if await repository.mount(wanted, RepositoryName(source)):
                return _blob_made(request, repository, wanted)
    expected = None if digest is None else Digest(digest)
    upload = await repository.begin_upload(pseudonym(context_of(request.scope).key))
    services.state.metrics.resumable.labels("begun").inc()
    if expected is None:
        return begun(request.scope, repository.name, upload.id, 0, status=202)
    async with upload_slot(services, request):
        await repository.finish_upload(upload.id, expected, body_stream(request.receive), _length(request))
    return _blob_made(request, repository, expected)


@endpoint(router, "GET /v2/{name:path}/blobs/uploads/{upload}", OCI_WRITE)
async def get_upload(request: Request, repository: Repository, upload: str) -> Response:
    """Return how many bytes of an upload have arrived."""
    return begun(request.scope, repository.name, upload, (await repository.upload(upload)).offset, status=204)


@endpoint(router, "PATCH /v2/{name:path}/blobs/uploads/{upload}", OCI_WRITE, body=UPLOAD_PART)
async def append_to_upload(request: Request, repository: Repository, services: Services, upload: str) -> Response:
    """Append bytes to an upload."""
    offset = (await repository.upload(upload)).offset
    check_place(read_fields(request.scope), offset)
    body = Body(pieces=body_stream(request.receive), offset=offset, size=_length(request))
    async with upload_slot(services, request):
        done = await repository.append(upload, body)
    return begun(request.scope, repository.name, upload, done.offset, status=202)


@endpoint(router, "PUT /v2/{name:path}/blobs/uploads/{upload}", OCI_WRITE, body=UPLOAD_PART)
async def finish_upload(
    request: Request, repository: Repository, services: Services, upload: str, digest: str | None = None
) -> Response:
    """End an upload. The body may have the upload's last bytes, or all bytes of the upload."""
    if digest is None:
        raise UploadInvalid("The query has no digest: finish the upload with ?digest=sha256:…")
    expected = Digest(digest)
    check_place(read_fields(request.scope), (await repository.upload(upload)).offset)
    async with upload_slot(services, request):
        await repository.finish_upload(upload, expected, body_stream(request.receive), _length(request))
    return _blob_made(request, repository, expected)


@endpoint(router, "DELETE /v2/{name:path}/blobs/uploads/{upload}", OCI_WRITE)
async def end_upload(repository: Repository, upload: str) -> Response:
    """Cancel an upload."""
    await repository.end_upload(upload)
    return Response(status_code=204)


@endpoint(router, "GET /v2/{name:path}/blobs/{digest}", READ)
async def get_blob(request: Request, repository: Repository, services: Services, digest: str) -> Response:
    """Return a blob, whole or by range."""
    wanted = Digest(digest)
    location = _blob_url(request, repository, wanted)  # Ollama reads the location from a blob's answer
    if context_of(request.scope).method == "HEAD":
        return Response(headers=blob_headers(location, wanted, (await repository.blob(wanted)).size))
    store, path = await repository.open_blob(wanted)
    context_of(request.scope).store = store.info.id
    rope = store.file(path)
    refuse_backward(read_fields(request.scope), rope.size)
    headers = [(b"docker-content-digest", wanted.text.encode()), (b"location", location.encode())]
    return RepresentationResponse(rope, headers, location=None)


@endpoint(router, "DELETE /v2/{name:path}/blobs/{digest}", REPOSITORY_DELETE)
async def delete_blob(repository: Repository, digest: str) -> Response:
    """Remove a blob from the repository."""
    await repository.delete_blob(Digest(digest))
    return Response(status_code=202)


@endpoint(router, "GET /v2/{name:path}/manifests/{ref}", READ)
async def get_manifest(request: Request, exported: Exported, ref: str) -> Response:
    """Return a manifest unchanged, or a manifest that is made for a commit.

    For Ollama and llama.cpp, the manifest is made for a GGUF file.
    """
    if is_llama(request):
        return JsonAnswer(await exported.llama(ref))
    found = await (exported.ollama(ref) if is_ollama(request) else exported.manifest(ref))
    headers = {"docker-content-digest": found.digest.text, "content-type": found.media_type}
    headers["etag"] = f'"{found.digest.text}"'
    if found.store is not None:
        headers["protoslice-store"] = context_of(request.scope).store = found.store
    return Response(found.data, headers=headers)


@endpoint(router, "PUT /v2/{name:path}/manifests/{ref}", OCI_WRITE, body=MANIFEST_BODY)
async def put_manifest(
    request: Request, repository: Repository, ref: str, tag: Annotated[list[str], Query()] = NO_TAGS
) -> Response:
    """Save a manifest under a tag or its digest, and under further tags.

    The manifest's blobs become files of a store.
    """
    media_type = media_type_of(read_fields(request.scope))
    data = b"".join([piece async for piece in body_stream(request.receive)])
    stored, manifest, missing = await repository.put_manifest(ref, data, media_type, tags=tag)
    headers = {} if manifest.subject is None else {"oci-subject": manifest.subject.text}
    context_of(request.scope).store = stored.store
    if stored.store is not None:
        headers["protoslice-store"] = stored.store
    if missing:
        headers["warning"] = f'299 - "{len(missing)} blobs were never uploaded, such as {missing[0].text}"'
    if tag:
        headers["oci-tag"] = ", ".join(tag)
    location = absolute_url(request.scope, f"/v2/{repository.name.text}/manifests/{stored.digest.text}")
    return made(location, stored.digest, headers)


@endpoint(router, "DELETE /v2/{name:path}/manifests/{ref}", REPOSITORY_DELETE)
async def delete_manifest(repository: Repository, ref: str) -> Response:
    """Remove a tag. If `ref` is a digest, remove the manifest with all its tags."""
    await repository.delete_manifest(ref)
    return Response(status_code=202)


def _blob_made(request: Request, repository: ArtifactRepository, digest: Digest) -> Response:
    return made(_blob_url(request, repository, digest), digest)


def _blob_url(request: Request, repository: ArtifactRepository, digest: Digest) -> str:
    return absolute_url(request.scope, f"/v2/{repository.name.text}/blobs/{digest.text}")


def _length(request: Request) -> int | None:
    said = read_fields(request.scope).get(b"content-length")
    return None if said is None else int(said)


def _limit(asked: int | None) -> int:
    return MAX_PAGE_ITEMS if asked is None else min(asked, MAX_PAGE_ITEMS)


def _json(content: object, headers: dict[str, str]) -> Response:
    return JsonAnswer(content, headers=headers)

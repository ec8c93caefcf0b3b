"""Routes of git-lfs: files that clients upload, whole or in parts, before the commit that names the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import InvalidInput, NotFound
from protoslice.json_text import encode_json
from protoslice.repositories import MAIN, Repository
from protoslice.repositories.git_history import GitHistory
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import HUB_UPLOAD, READ, READ_SIGNED, Scope
from protoslice.server.auth.spaces import absolute_url, url_of
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.headers import read_fields
from protoslice.server.registries.hub.paths import Text, render_hub, render_lfs, repository_of, split_kind
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.serving import StoredPath
from protoslice.uploads import Body

router = RouteGroup(render=render_lfs, strict=False, include_in_schema=False)
part_router = RouteGroup(render=render_hub, strict=False, include_in_schema=False)

_UPLOADS: Final = "/api/lfs-uploads"
_FILES: Final = "/api/lfs-files"
_MULTIPART: Final = "multipart"
"""The name of the transfer in parts. Hugging Face clients and their git-lfs agent offer this transfer."""
Signed = Callable[[str, str], str]
"""A function that takes an HTTP method and a URL, and returns the signed URL."""
_MOST_OBJECTS: Final = 256
"""The maximum number of objects in a batch. Each object begins an upload."""
_UPLOAD: Final = "upload"
"""The operation of a batch in which the client sends files."""
_DOWNLOAD: Final = "download"
"""The operation of a batch in which the client requests files."""
_MOST_PARTS: Final = 400
"""The maximum number of parts of a file. Each part is an upload."""
_PART_UPLOADS: Final = "/api/lfs-parts"
_PART_BYTES: Final = 64 << 20
_MOST_OF_BATCH: Final = 10_000
"""The maximum number of parts of all files in a batch. Each part has a URL in the answer."""
_URL_BYTES: Final = 400
_MEDIA: Final = "application/vnd.git-lfs+json"

Oid = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Bytes = Annotated[int, Path(ge=1, lt=1 << 63)]


class LfsRef(BaseModel):
    """The revision to which files of git-lfs belong."""

    name: Text = MAIN


class LfsObject(BaseModel):
    """A file of git-lfs. An empty file is sent within its commit instead."""

    oid: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=1, lt=1 << 63)]


class LfsPart(BaseModel):
    """A part that was sent, and the entity tag in the response to this part."""

    partNumber: Annotated[int, Field(ge=1, le=_MOST_PARTS)]  # noqa: N815 - the protocol's name
    etag: Text


class LfsParts(BaseModel):
    """All parts of a file, in any order."""

    parts: Annotated[list[LfsPart], Field(max_length=_MOST_PARTS)]


class BatchBody(BaseModel):
    """The git-lfs files that a client sends or requests."""

    operation: Text
    transfers: Annotated[list[Text], Field(max_length=20)] = []
    ref: LfsRef | None = None
    objects: Annotated[list[LfsObject], Field(max_length=_MOST_OBJECTS)]


@endpoint(router, "POST /{name:repository_of_kind}.git/info/lfs/objects/batch", READ)
async def plan_files(request: Request, services: Services, name: str, body: BatchBody) -> Response:
    """Return the URLs to download files from or to send files to. A file that already exists needs no upload."""
    kind, name = split_kind(name)

    def at(route: str) -> str:
        return absolute_url(request.scope, f"{route}/{kind}/{name}")

    signed = await services.signing()
    if body.operation == _DOWNLOAD:
        repository = await services.repositories.find(repository_of(kind, name))
        return await _downloads(signed, at(_FILES), body, repository)
    if body.operation != _UPLOAD:
        raise InvalidInput(f"Invalid operation {body.operation!r}: use {_UPLOAD!r} or {_DOWNLOAD!r}")
    services.auth.require(Scope.WRITE, tags=[unquote(name)])
    context_of(request.scope).changes = True
    repository = await services.repositories.get(repository_of(kind, name))
    # Hugging Face clients commit the files that they send. git-lfs commits to a git repository that is not on this
    # service.
    keep = read_fields(request.scope).get(b"user-agent", "").startswith("git-lfs/") or _MULTIPART not in body.transfers
    client = pseudonym(context_of(request.scope).key)
    new = await _new(repository, body, keep=keep)
    if "xet" in body.transfers and not keep:
        return _by_xet(f"{at('/api')}/xet-write-token", body, new)
    if _wants_parts(body, new) and not keep:
        return await _plan_parts(services, at(_PART_UPLOADS), body, repository, new)
    uploads = await map_concurrently(lambda each: repository.staged.begin(each.oid, each.size, client), new)
    query = "?keep=true" if keep else ""
    actions = {
        each.oid: {"href": signed("PUT", f"{at(_UPLOADS)}/{upload.id}{query}")}
        for each, upload in zip(new, uploads, strict=True)
        if not upload.is_whole
    }
    return _batch_answer("basic", body, actions)


@endpoint(router, "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}", HUB_UPLOAD, body=UPLOAD_PART)
async def send_file(
    request: Request, services: Services, kind: str, name: str, upload: str, keep: bool = False
) -> Response:
    """Receive the bytes of a file. The signature of the URL gives the permission, because clients send no token.

    With `keep`, no commit names the file later, so the file becomes a store at once.
    """
    uploads = services.uploads
    found = await uploads.get(upload)
    sha256 = found.sha256
    if sha256 is None or found.path != sha256:
        raise NotFound("The upload does not exist: start it again")
    repository = await services.repositories.get(repository_of(kind, name))
    if found.is_whole:  # the client repeats the request because the answer was lost
        async for _ in body_stream(request.receive):
            pass
    else:
        async with upload_slot(services, request):
            body = Body(
                pieces=body_stream(request.receive),
                offset=0,
                last=True,
                sha256=bytes.fromhex(sha256),
            )
            found = await uploads.append(upload, body)
    await repository.staged.keep(found)
    if keep:
        await repository.staged.settle(sha256)
    return Response(status_code=200)


@endpoint(router, "GET /api/lfs-files/{kind}/{name:repository}/{oid}", READ_SIGNED)
async def get_file(
    request: Request, services: Services, kind: str, name: str, oid: Oid, size: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """Serve a file, found by its digest, whole or by range.

    If the request has the file's `size`, search earlier commits too.
    """
    repository = await services.repositories.find(repository_of(kind, name))
    place = await repository.staged.settle(oid) or await repository.known().find(oid)
    if place is None and size:
        place = (await GitHistory(repository).places([(oid, size)])).get((oid, size))
    if place is None:
        raise NotFound(f"The repository has no file of SHA-256 {oid}")
    store, path = place
    context_of(request.scope).store = store
    location = url_of(request.scope, f"/v1/stores/{store}/files/{quote(path)}")
    return RepresentationResponse((await services.stores.view(store)).file(path), [], location=location)


def _by_xet(tokens: str, body: BatchBody, new: Sequence[LfsObject]) -> Response:
    """Return the response that asks the client to send new objects by Xet, with the URL at which a session begins."""
    revision = quote(body.ref.name if body.ref is not None else MAIN, safe="")
    return _batch_answer("xet", body, {each.oid: {"href": f"{tokens}/{revision}", "header": {}} for each in new})


async def _new(repository: Repository, body: BatchBody, *, keep: bool) -> Sequence[LfsObject]:
    """Return the objects that the repository does not have.

    With `keep`, the repository keeps from now on the objects that it already has.
    """
    known = repository.known()
    places = [(each, await known.find(each.oid)) for each in body.objects]

    async def kept(found: tuple[LfsObject, StoredPath | None]) -> bool:
        each, place = found
        if await repository.staged.settle(each.oid) is not None:
            return True
        if place is not None:
            await repository.staged.hold(each.oid, each.size, place)
        return place is not None

    there = await map_concurrently(kept, places) if keep else [place is not None for _, place in places]
    return [each for each, has in zip(body.objects, there, strict=True) if not has]


async def _downloads(signed: Signed, url: str, body: BatchBody, repository: Repository) -> Response:
    """Return the response with the URLs of the objects that the repository has."""
    known = repository.known()
    there = await map_concurrently(lambda each: repository.staged.has(each.oid), body.objects)
    found = [each for each, has in zip(body.objects, there, strict=True) if has or await known.find(each.oid)]
    left = {(each.oid, each.size) for each in body.objects} - {(each.oid, each.size) for each in found}
    earlier = await GitHistory(repository).places(left)
    wanted = [(each.oid, each.size) for each in found] + list(earlier)
    return _batch_answer(
        "basic", body, {oid: {"href": signed("GET", f"{url}/{oid}?size={size}")} for oid, size in wanted}
    )


def _wants_parts(body: BatchBody, new: Sequence[LfsObject]) -> bool:
    """Return True if new objects have to be sent in parts.

    The client has to support sending in parts, and at least one object has to be large.
    """
    return _MULTIPART in body.transfers and any(each.size > _PART_BYTES for each in new)


def _batch_answer(transfer: str, body: BatchBody, actions: Mapping[str, object]) -> Response:
    """Return the response to a batch. `actions` is keyed by an object's digest.

    An object without an action needs no upload, or cannot be downloaded.
    """
    missing = {"error": {"code": 404, "message": "The repository does not have this object: push it first"}}
    other = missing if body.operation == _DOWNLOAD else {}
    objects = [
        {"oid": each.oid, "size": each.size}
        | ({"actions": {body.operation: actions[each.oid]}} if each.oid in actions else other)
        for each in body.objects
    ]
    return Response(encode_json({"transfer": transfer, "objects": objects}), media_type=_MEDIA)


async def _plan_parts(
    services: Services, base: str, body: BatchBody, repository: Repository, new: Sequence[LfsObject]
) -> Response:
    """Return the URLs for the parts of new objects. Nothing is stored before the first part arrives."""
    for each in new:
        services.stores.uploads.options.check_size(each.size)
    staged = await map_concurrently(lambda each: repository.staged.find(each.oid), new)
    missing = [each for each, found in zip(new, staged, strict=True) if found is None]
    await services.stores.quotas.check(stored_bytes=sum(each.size for each in missing))
    most = min(_MOST_PARTS, _MOST_OF_BATCH // max(1, len(missing)))

    signed = await services.signing()

    def planned() -> dict[str, object]:
        return {each.oid: _action(signed, base, each, most) for each in missing}

    actions = await services.stores.worker.run_if_large(_URL_BYTES * most * len(missing), planned)
    return _batch_answer(_MULTIPART, body, actions)


def _action(signed: Callable[[str, str], str], base: str, wanted: LfsObject, most: int) -> dict[str, object]:
    chunk = max(_PART_BYTES, -(-wanted.size // most))
    at = f"{base}/{wanted.oid}/{wanted.size}/{chunk}"
    count = _count(wanted.size, chunk)
    header: dict[str, Any] = {"chunk_size": str(chunk)}
    header |= {f"{number}": signed("PUT", f"{at}/{number}") for number in range(1, count + 1)}
    return {"href": signed("POST", at), "header": header}


@endpoint(
    part_router,
    "PUT /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}/{number}",
    HUB_UPLOAD,
    body=UPLOAD_PART,
)
async def send_part(
    request: Request, services: Services, kind: str, name: str, oid: Oid, size: Bytes, chunk: Bytes, number: Bytes
) -> Response:
    """Receive a part.

    The signature of the URL gives the permission, and the entity tag in the answer names the part.
    """
    repository = await services.repositories.get(repository_of(kind, name))
    services.stores.uploads.options.check_size(size)
    if number > _count(size, chunk):
        raise NotFound(f"The file has no part {number}")
    length = min(chunk, size - (number - 1) * chunk)
    async with upload_slot(services, request):
        client = pseudonym(context_of(request.scope).key)
        part = await repository.staged.put_part(_mark(oid, chunk, number), length, body_stream(request.receive), client)
    return Response(headers={"etag": f'"{part}"'})


@endpoint(part_router, "POST /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}", HUB_UPLOAD)
async def join_parts(
    request: Request, services: Services, kind: str, name: str, oid: Oid, size: Bytes, chunk: Bytes, body: LfsParts
) -> Response:
    """Make the file from its parts, and check the file's SHA-256."""
    repository = await services.repositories.get(repository_of(kind, name))
    sent = {part.partNumber: part.etag.strip('"') for part in body.parts}
    if sorted(sent) != list(range(1, _count(size, chunk) + 1)):
        raise InvalidInput(f"Invalid parts: the file has parts 1 to {_count(size, chunk)}, each listed once")
    parts = [(_mark(oid, chunk, number), sent[number]) for number in sorted(sent)]
    async with upload_slot(services, request):
        await repository.staged.join(oid, size, parts, pseudonym(context_of(request.scope).key))
    return Response()


def _count(size: int, chunk: int) -> int:
    """Return the number of parts of a file. Raise `InvalidInput` if a file may not have so many parts."""
    count = -(-size // chunk)
    if count > _MOST_PARTS:
        raise InvalidInput(f"Too many parts: at most {_MOST_PARTS}, not {count}")
    return count


def _mark(oid: str, chunk: int, number: int) -> str:
    return f"{oid} {chunk} {number}"

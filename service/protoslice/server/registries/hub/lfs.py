"""Routes of git-lfs: files that are uploaded before the commit that names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final
from urllib.parse import quote, unquote

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import InvalidInput, NotFound
from protoslice.repositories import MAIN, Repository
from protoslice.repositories.git_history import GitHistory
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import HUB_UPLOAD, READ, READ_SIGNED, Scope
from protoslice.server.auth.places import absolute_url, url_of
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.headers import read_fields
from protoslice.server.registries.hub.bodies import DOWNLOAD, UPLOAD, BatchBody, LfsObject
from protoslice.server.registries.hub.failures import render_lfs
from protoslice.server.registries.hub.lfs_parts import PART_UPLOADS, Oid, batch_answer, plan_parts, wants_parts
from protoslice.server.registries.hub.paths import repository_of
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given, Services
from protoslice.serving import StoredPath
from protoslice.uploads import Body

router = RouteGroup(render=render_lfs, strict=False, include_in_schema=False)

_UPLOADS: Final = "/api/lfs-uploads"
_FILES: Final = "/api/lfs-files"
_MULTIPART: Final = "multipart"
Signed = Callable[[str, str], str]
"""Signer of URLs by method."""


@endpoint(router, "POST /datasets/{name:repository}.git/info/lfs/objects/batch", READ)
async def plan_dataset_files(request: Request, services: Given, name: str, body: BatchBody) -> Response:
    """Begin the uploads of files of a dataset."""
    return await _planned(request, services, "datasets", name, body)


@endpoint(router, "POST /{name:repository}.git/info/lfs/objects/batch", READ)
async def plan_model_files(request: Request, services: Given, name: str, body: BatchBody) -> Response:
    """Begin the uploads of files of a model."""
    return await _planned(request, services, "models", name, body)


@endpoint(router, "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}", HUB_UPLOAD, body=UPLOAD_PART)
async def send_file(
    request: Request, services: Given, kind: str, name: str, upload: str, keep: bool = False
) -> Response:
    """Take the bytes of a file; the signature of the URL is the permission, as clients send no other.

    With `keep` no commit will name the file, and it becomes a store.
    """
    uploads = services.uploads
    found = await uploads.get(upload)
    sha256 = found.sha256
    if sha256 is None or found.path != sha256:
        raise NotFound("No such upload")
    repository = await services.repositories.get(repository_of(kind, name))
    if found.is_whole:  # sent again, since the answer was lost
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
    request: Request, services: Given, kind: str, name: str, oid: Oid, size: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """Serve a file by its digest, whole or by range; its `size` lets it be found in earlier commits too."""
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
    """The answer that new objects come by Xet; their action is where a session begins."""
    revision = quote(body.ref.name if body.ref is not None else MAIN, safe="")
    return batch_answer("xet", body, {each.oid: {"href": f"{tokens}/{revision}", "header": {}} for each in new})


async def _planned(request: Request, services: Services, kind: str, name: str, body: BatchBody) -> Response:
    """The answer to a batch: an object without actions is there already."""

    def at(route: str) -> str:
        return absolute_url(request.scope, f"{route}/{kind}/{name}")

    signed = await services.signing()
    if body.operation == DOWNLOAD:
        repository = await services.repositories.find(repository_of(kind, name))
        return await _downloads(signed, at(_FILES), body, repository)
    if body.operation != UPLOAD:
        raise InvalidInput(f"Invalid operation {body.operation!r}: use {UPLOAD!r} or {DOWNLOAD!r}")
    services.auth.require(Scope.WRITE, tags=[unquote(name)])
    context_of(request.scope).changes = True
    repository = await services.repositories.get(repository_of(kind, name))
    # Clients of Hugging Face commit the files that they send here; git-lfs commits to a repository of git elsewhere.
    keep = read_fields(request.scope).get(b"user-agent", "").startswith("git-lfs/") or _MULTIPART not in body.transfers
    client = pseudonym(context_of(request.scope).key)
    new = await _new(repository, body, keep=keep)
    if "xet" in body.transfers and not keep:
        return _by_xet(f"{at('/api')}/xet-write-token", body, new)
    if wants_parts(body, new) and not keep:
        return await plan_parts(services, at(PART_UPLOADS), body, repository, new)
    uploads = await map_concurrently(lambda each: repository.staged.begin(each.oid, each.size, client), new)
    query = "?keep=true" if keep else ""
    actions = {
        each.oid: {"href": signed("PUT", f"{at(_UPLOADS)}/{upload.id}{query}")}
        for each, upload in zip(new, uploads, strict=True)
        if not upload.is_whole
    }
    return batch_answer("basic", body, actions)


async def _new(repository: Repository, body: BatchBody, *, keep: bool) -> Sequence[LfsObject]:
    """Objects that the repository does not have; with `keep` it keeps the others from now on."""
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
    """The answer where the objects are that the repository has."""
    known = repository.known()
    there = await map_concurrently(lambda each: repository.staged.has(each.oid), body.objects)
    found = [each for each, has in zip(body.objects, there, strict=True) if has or await known.find(each.oid)]
    left = {(each.oid, each.size) for each in body.objects} - {(each.oid, each.size) for each in found}
    earlier = await GitHistory(repository).places(left)
    wanted = [(each.oid, each.size) for each in found] + list(earlier)
    return batch_answer(
        "basic", body, {oid: {"href": signed("GET", f"{url}/{oid}?size={size}")} for oid, size in wanted}
    )

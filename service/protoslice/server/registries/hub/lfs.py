"""Routes of git-lfs: files that are uploaded before the commit that names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import InvalidInput, NotFound
from protoslice.repositories import MAIN
from protoslice.server.access.places import absolute_url
from protoslice.server.intake.uploads import counted, pieces_of
from protoslice.server.middleware.body_limits import PART_BODY, takes_body
from protoslice.server.middleware.clients import pseudonym
from protoslice.server.middleware.context import context_of
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.registries.hub.bodies import BatchBody, LfsObject
from protoslice.server.registries.hub.failures import LfsRoute, answering
from protoslice.server.registries.hub.lfs_parts import PART_UPLOADS, batch_answer, plan_parts, wants_parts
from protoslice.server.registries.hub.paths import repository_of
from protoslice.server.services import Given, Services
from protoslice.stores.uploads import Body

router = GuardedRouter(route_class=LfsRoute, include_in_schema=False)

_UPLOADS: Final = "/api/lfs-uploads"


@router.post("/datasets/{name:repository}.git/info/lfs/objects/batch")
@answering
async def plan_dataset_files(request: Request, services: Given, name: str, body: BatchBody) -> Response:
    """Begin the uploads of files of a dataset."""
    return await _planned(request, services, "datasets", name, body)


@router.post("/{name:repository}.git/info/lfs/objects/batch")
@answering
async def plan_model_files(request: Request, services: Given, name: str, body: BatchBody) -> Response:
    """Begin the uploads of files of a model."""
    return await _planned(request, services, "models", name, body)


@router.put(_UPLOADS + "/{kind}/{name:repository}/{upload}")
@takes_body(PART_BODY)
@answering
async def send_file(request: Request, services: Given, kind: str, name: str, upload: str) -> Response:
    """Take the bytes of a file; the signature of the URL is the permission, as clients send no other."""
    uploads = services.uploads
    found = await uploads.get(upload)
    if found.sha256 is None or found.path != found.sha256:
        raise NotFound("there is no such upload")
    repository = await services.repositories.get(repository_of(kind, name))
    if found.is_whole:  # sent again, since the answer was lost
        async for _ in pieces_of(request):
            pass
    else:
        with counted(services, request):
            body = Body(
                pieces=pieces_of(request),
                offset=0,
                last=True,
                sha256=bytes.fromhex(found.sha256),
            )
            found = await uploads.append(upload, body)
    await repository.staged.keep(found)
    return Response(status_code=200)


def _by_xet(tokens: str, body: BatchBody, new: Sequence[LfsObject]) -> Response:
    """The answer that new objects come by Xet; their action is where a session begins."""
    revision = quote(body.ref.name if body.ref is not None else MAIN, safe="")
    return batch_answer("xet", body, {each.oid: {"href": f"{tokens}/{revision}", "header": {}} for each in new})


async def _planned(request: Request, services: Services, kind: str, name: str, body: BatchBody) -> Response:
    """The answer to a batch: an object without actions is there already."""
    if body.operation != "upload":
        raise InvalidInput(f"operation {body.operation!r}: files are only sent by git-lfs, and read under /resolve/")
    repository = await services.repositories.get(repository_of(kind, name))
    known, client = repository.known(), pseudonym(context_of(request.scope).key)
    new = [each for each in body.objects if await known.find(each.oid) is None]
    base = absolute_url(request.scope, f"{{}}/{kind}/{name}")
    if "xet" in body.transfers:
        return _by_xet(f"{base.format('/api')}/xet-write-token", body, new)
    if wants_parts(body, new):
        return await plan_parts(services, base.format(PART_UPLOADS), body, repository, new)
    uploads = await map_concurrently(lambda each: repository.staged.begin(each.oid, each.size, client), new)
    signed = await services.signing()
    actions = {
        each.oid: {"href": signed("PUT", f"{base.format(_UPLOADS)}/{upload.id}")}
        for each, upload in zip(new, uploads, strict=True)
        if not upload.is_whole
    }
    return batch_answer("basic", body, actions)

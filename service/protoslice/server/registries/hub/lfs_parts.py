"""Routes of git-lfs for files that come in parts, each of which may be sent again by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Path, Request
from starlette.responses import Response

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import InvalidInput, NotFound
from protoslice.json_text import encode_json
from protoslice.repositories import Repository
from protoslice.server.auth.permissions import HUB_UPLOAD
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.registries.hub.bodies import DOWNLOAD, MOST_PARTS, BatchBody, LfsObject, LfsParts
from protoslice.server.registries.hub.failures import render_hub
from protoslice.server.registries.hub.paths import repository_of
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given, Services

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False)

_PARTS: Final = "multipart"
"""Name of the transfer, which clients of Hugging Face and their agent of git-lfs offer."""
PART_UPLOADS: Final = "/api/lfs-parts"
_PART_BYTES: Final = 64 << 20
_MOST_OF_BATCH: Final = 10_000
"""Parts of all files of one batch: each has a URL in the answer."""
_URL_BYTES: Final = 400
_MEDIA: Final = "application/vnd.git-lfs+json"

Oid = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Bytes = Annotated[int, Path(ge=1, lt=1 << 63)]


def wants_parts(body: BatchBody, new: Sequence[LfsObject]) -> bool:
    """True when new objects are to come in parts: the client can, and one of them is large."""
    return _PARTS in body.transfers and any(each.size > _PART_BYTES for each in new)


def batch_answer(transfer: str, body: BatchBody, actions: Mapping[str, object]) -> Response:
    """The answer to a batch: actions by the digest of an object.

    An object without one needs no upload, and has no download.
    """
    missing = {"error": {"code": 404, "message": "The repository does not have this object: push it first"}}
    other = missing if body.operation == DOWNLOAD else {}
    objects = [
        {"oid": each.oid, "size": each.size}
        | ({"actions": {body.operation: actions[each.oid]}} if each.oid in actions else other)
        for each in body.objects
    ]
    return Response(encode_json({"transfer": transfer, "objects": objects}), media_type=_MEDIA)


async def plan_parts(
    services: Services, base: str, body: BatchBody, repository: Repository, new: Sequence[LfsObject]
) -> Response:
    """URLs of the parts of new objects; nothing is kept before the first part comes."""
    for each in new:
        services.stores.uploads.options.check_size(each.size)
    staged = await map_concurrently(lambda each: repository.staged.find(each.oid), new)
    missing = [each for each, found in zip(new, staged, strict=True) if found is None]
    await services.stores.quotas.check(stored_bytes=sum(each.size for each in missing))
    most = min(MOST_PARTS, _MOST_OF_BATCH // max(1, len(missing)))

    signed = await services.signing()

    def planned() -> dict[str, object]:
        return {each.oid: _action(signed, base, each, most) for each in missing}

    actions = await services.stores.worker.sized(_URL_BYTES * most * len(missing), planned)
    return batch_answer(_PARTS, body, actions)


def _action(signed: Callable[[str, str], str], base: str, wanted: LfsObject, most: int) -> dict[str, object]:
    chunk = max(_PART_BYTES, -(-wanted.size // most))
    at = f"{base}/{wanted.oid}/{wanted.size}/{chunk}"
    count = _count(wanted.size, chunk)
    header: dict[str, Any] = {"chunk_size": str(chunk)}
    header |= {f"{number}": signed("PUT", f"{at}/{number}") for number in range(1, count + 1)}
    return {"href": signed("POST", at), "header": header}


@endpoint(
    router, "PUT /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}/{number}", HUB_UPLOAD, body=UPLOAD_PART
)
async def send_part(
    request: Request, services: Given, kind: str, name: str, oid: Oid, size: Bytes, chunk: Bytes, number: Bytes
) -> Response:
    """Take a part; the signature of the URL is the permission, and the entity tag names the part."""
    repository = await services.repositories.get(repository_of(kind, name))
    services.stores.uploads.options.check_size(size)
    if number > _count(size, chunk):
        raise NotFound(f"The file has no part {number}")
    length = min(chunk, size - (number - 1) * chunk)
    async with upload_slot(services, request):
        client = pseudonym(context_of(request.scope).key)
        part = await repository.staged.put_part(_mark(oid, chunk, number), length, body_stream(request.receive), client)
    return Response(headers={"etag": f'"{part}"'})


@endpoint(router, "POST /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}", HUB_UPLOAD)
async def join_parts(
    request: Request, services: Given, kind: str, name: str, oid: Oid, size: Bytes, chunk: Bytes, body: LfsParts
) -> Response:
    """Make the file of its parts, compared with its SHA-256."""
    repository = await services.repositories.get(repository_of(kind, name))
    sent = {part.partNumber: part.etag.strip('"') for part in body.parts}
    if sorted(sent) != list(range(1, _count(size, chunk) + 1)):
        raise InvalidInput(f"Invalid parts: the file has parts 1 to {_count(size, chunk)}, each listed once")
    parts = [(_mark(oid, chunk, number), sent[number]) for number in sorted(sent)]
    async with upload_slot(services, request):
        await repository.staged.join(oid, size, parts, pseudonym(context_of(request.scope).key))
    return Response()


def _count(size: int, chunk: int) -> int:
    """Number of parts of a file; `InvalidInput` for more than a file may have."""
    count = -(-size // chunk)
    if count > MOST_PARTS:
        raise InvalidInput(f"Too many parts: at most {MOST_PARTS}, not {count}")
    return count


def _mark(oid: str, chunk: int, number: int) -> str:
    return f"{oid} {chunk} {number}"

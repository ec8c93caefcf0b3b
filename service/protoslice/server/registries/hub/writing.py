"""Routes of the hub that write: repositories, commits, branches and tags."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from starlette.responses import Response

from protoslice.errors import InvalidInput, Unsupported
from protoslice.repositories import MAIN, Author, Change, KnownFiles, Repository, RepositoryExists
from protoslice.server.auth.permissions import DELETE, HUB_WRITE, OPEN, REPOSITORY_DELETE, Rule, Scope, from_body
from protoslice.server.auth.places import absolute_url
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.problems import CONFLICT
from protoslice.server.registries.hub.bodies import BranchBody, PreuploadBody, PreuploadFile, RepositoryBody, TagBody
from protoslice.server.registries.hub.failures import render_hub
from protoslice.server.registries.hub.operations import (
    INLINE_BYTES,
    CommitHeader,
    Deletion,
    InlineFile,
    KnownFile,
    Operation,
    operations_of,
)
from protoslice.server.registries.hub.paths import USER, Encoded, repository_of, url_of
from protoslice.server.registries.hub.pull_requests import NO_DISCUSSIONS, NO_PULL_REQUESTS
from protoslice.server.request.body import UPLOAD_BODY
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False, dependencies=[NO_PULL_REQUESTS])

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BEFORE: Final = ".parquet"
"""Suffix of files that come before a commit, whatever their size: `datasets` removes them before it."""


@endpoint(router, "POST /api/repos/create", Rule(Scope.WRITE, tags=from_body))
async def create_repository(request: Request, services: Given, body: RepositoryBody) -> Response:
    """Create a repository; its URL is told too when it exists."""
    name = _name_of(body)
    body.check(closed=services.authenticator.closed)
    services.auth.require(Scope.WRITE, tags=[name.removeprefix("datasets/")])
    told = {"url": _absolute(request, name), "name": name}
    try:
        await services.repositories.create(name)
    except RepositoryExists as error:
        there = error.current if services.auth.may(Scope.READ) else name
        told = {"url": _absolute(request, there), "name": there}
        return JsonAnswer({**told, "error": error.message}, CONFLICT.status)
    return JsonAnswer(told)


@endpoint(router, "DELETE /api/repos/delete", DELETE)
async def delete_repository(services: Given, body: RepositoryBody) -> Response:
    """Delete a repository and its history."""
    await services.repositories.remove(_name_of(body))
    return JsonAnswer({})


@endpoint(router, "POST /api/validate-yaml", OPEN)
async def validate_metadata(request: Request) -> Response:
    """Accept the head of any model card: nothing here depends on it."""
    await request.body()
    return JsonAnswer({"errors": [], "warnings": []})


@endpoint(router, "POST /api/{kind}/{name:repository}/preupload/{revision}", HUB_WRITE)
async def plan_upload(services: Given, kind: str, name: str, revision: Encoded, body: PreuploadBody) -> Response:
    """The way that each file takes: small ones within the commit, others before it."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.commit(revision)
    planned = [{"path": file.path, "uploadMode": _mode(file), "shouldIgnore": False} for file in body.files]
    return JsonAnswer({"files": planned})


def _mode(file: PreuploadFile) -> str:
    within = file.size <= INLINE_BYTES and not (file.size and file.path.endswith(_BEFORE))
    return "regular" if within else "lfs"


@endpoint(router, "POST /api/{kind}/{name:repository}/commit/{revision}", HUB_WRITE, body=UPLOAD_BODY)
async def commit(request: Request, services: Given, kind: str, name: str, revision: Encoded) -> Response:
    """Commit the operations of the body, which is read line by line."""
    repository = await services.repositories.get(repository_of(kind, name))
    async with upload_slot(services, request):
        operations = operations_of(body_stream(request.receive))
        header = await anext(operations, None)
        if not isinstance(header, CommitHeader):
            raise InvalidInput("The first line of a commit must have the key `header`")
        async with await repository.change(revision, parent=header.parent) as change:
            await _apply(operations, repository, change)
            made = await change.commit(Author(header.summary, header.description))
    url = f"{_absolute(request, repository.name)}/commit/{made.id}"
    return JsonAnswer({"success": True, "commitUrl": url, "commitOid": made.id, "hookOutput": ""})


async def _apply(operations: AsyncIterator[Operation], repository: Repository, change: Change) -> None:
    known = repository.known()
    async for operation in operations:
        match operation:
            case CommitHeader():
                raise InvalidInput("A commit must have a single line with the key `header`")
            case InlineFile(path, content):
                await change.put(path, _once(content))
            case KnownFile(path, sha256):
                await _take(repository, known, change, path, sha256)
            case Deletion(path, folder):
                (change.delete_folder if folder else change.delete)(path)


async def _take(repository: Repository, known: KnownFiles, change: Change, path: str, sha256: str) -> None:
    """Take a file that was uploaded before the commit, or is in the repository."""
    if not _SHA256.fullmatch(sha256):
        raise InvalidInput(f"{path!r}: the oid must be a SHA-256 in hex")
    if (upload := await repository.staged.find(sha256)) is not None:
        await change.take(path, upload)
    elif (place := await repository.staged.place(sha256) or await known.find(sha256)) is not None:
        change.copy(path, place)
    else:
        raise InvalidInput(f"{path!r}: the repository has no file with SHA-256 {sha256}: upload it first")


async def _once(content: bytes) -> AsyncIterator[bytes]:
    if content:
        yield content


@endpoint(router, "POST /api/{kind}/{name:repository}/discussions", HUB_WRITE)
async def create_discussion() -> Response:
    """Refuse a discussion or a pull request."""
    raise Unsupported(NO_DISCUSSIONS)


@endpoint(router, "POST /api/{kind}/{name:repository}/branch/{branch}", HUB_WRITE)
async def create_branch(services: Given, kind: str, name: str, branch: Encoded, body: BranchBody) -> Response:
    """Create a branch."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.create("heads", branch, body.startingPoint or MAIN)
    return JsonAnswer({}, 201)


@endpoint(router, "DELETE /api/{kind}/{name:repository}/branch/{branch}", REPOSITORY_DELETE)
async def delete_branch(services: Given, kind: str, name: str, branch: Encoded) -> Response:
    """Delete a branch."""
    await (await services.repositories.get(repository_of(kind, name))).remove("heads", branch)
    return JsonAnswer({})


@endpoint(router, "POST /api/{kind}/{name:repository}/tag/{revision}", HUB_WRITE)
async def create_tag(services: Given, kind: str, name: str, revision: Encoded, body: TagBody) -> Response:
    """Create a tag at a revision."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.create("tags", body.tag, revision)
    return JsonAnswer({}, 201)


@endpoint(router, "DELETE /api/{kind}/{name:repository}/tag/{tag}", REPOSITORY_DELETE)
async def delete_tag(services: Given, kind: str, name: str, tag: Encoded) -> Response:
    """Delete a tag."""
    await (await services.repositories.get(repository_of(kind, name))).remove("tags", tag)
    return JsonAnswer({})


def _name_of(body: RepositoryBody) -> str:
    """Name of the repository that a body names."""
    # Clients from 1.0 on refuse URLs of repositories without an owner.
    owned = body.name if "/" in body.name else f"{body.organization or USER}/{body.name}"
    return repository_of(f"{body.type or 'model'}s", owned)


def _absolute(request: Request, name: str) -> str:
    """URL of a repository."""
    return absolute_url(request.scope, url_of(name))

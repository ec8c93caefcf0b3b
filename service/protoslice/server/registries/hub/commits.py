"""Routes of the hub for commits, and for the branches and tags that point at commits."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded, Unsupported
from protoslice.json_text import parse_json
from protoslice.repositories import MAIN, Author, Change, KnownFiles, Repository
from protoslice.server.auth.permissions import HUB_WRITE, REPOSITORY_DELETE
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.hub.paths import (
    NO_DISCUSSIONS,
    NO_PULL_REQUESTS,
    Encoded,
    Text,
    render_hub,
    repository_of,
    repository_url,
)
from protoslice.server.request.body import UPLOAD_BODY
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False, dependencies=[NO_PULL_REQUESTS])

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BEFORE: Final = ".parquet"
"""The suffix of files that clients upload before a commit, even if the files are small.

The library `datasets` no longer has the content of these files when it commits.
"""
_MOST_FILES: Final = 1000


class BranchBody(BaseModel):
    """The revision at which a new branch begins."""

    startingPoint: Text | None = None  # noqa: N815 - the protocol's name


class TagBody(BaseModel):
    """A new tag."""

    tag: Text
    message: str | None = None


class PreuploadFile(BaseModel):
    """A file that a client is about to send."""

    path: str
    size: Annotated[int, Field(ge=0)] = 0


class PreuploadBody(BaseModel):
    """The files that a client is about to send."""

    files: Annotated[list[PreuploadFile], Field(max_length=_MOST_FILES)]


@endpoint(router, "POST /api/{kind}/{name:repository}/preupload/{revision}", HUB_WRITE)
async def plan_upload(services: Services, kind: str, name: str, revision: Encoded, body: PreuploadBody) -> Response:
    """Return how the client has to send each file. Small files are sent within the commit, large files before it."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.commit(revision)
    planned = [{"path": file.path, "uploadMode": _mode(file), "shouldIgnore": False} for file in body.files]
    return JsonAnswer({"files": planned})


def _mode(file: PreuploadFile) -> str:
    within = file.size <= INLINE_BYTES and not (file.size and file.path.endswith(_BEFORE))
    return "regular" if within else "lfs"


@endpoint(router, "POST /api/{kind}/{name:repository}/commit/{revision}", HUB_WRITE, body=UPLOAD_BODY)
async def commit(request: Request, services: Services, kind: str, name: str, revision: Encoded) -> Response:
    """Commit the operations in the body, which is read line by line."""
    repository = await services.repositories.get(repository_of(kind, name))
    async with upload_slot(services, request):
        operations = operations_of(body_stream(request.receive))
        header = await anext(operations, None)
        if not isinstance(header, CommitHeader):
            raise InvalidInput("The first line of a commit must have the key `header`")
        async with await repository.change(revision, parent=header.parent) as change:
            await _apply(operations, repository, change)
            made = await change.commit(Author(header.summary, header.description))
    url = f"{repository_url(request.scope, repository.name)}/commit/{made.id}"
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
    """Add a file that was uploaded before the commit, or that the repository already has."""
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
async def create_branch(services: Services, kind: str, name: str, branch: Encoded, body: BranchBody) -> Response:
    """Create a branch."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.create("heads", branch, body.startingPoint or MAIN)
    return JsonAnswer({}, 201)


@endpoint(router, "DELETE /api/{kind}/{name:repository}/branch/{branch}", REPOSITORY_DELETE)
async def delete_branch(services: Services, kind: str, name: str, branch: Encoded) -> Response:
    """Delete a branch."""
    await (await services.repositories.get(repository_of(kind, name))).remove("heads", branch)
    return JsonAnswer({})


@endpoint(router, "POST /api/{kind}/{name:repository}/tag/{revision}", HUB_WRITE)
async def create_tag(services: Services, kind: str, name: str, revision: Encoded, body: TagBody) -> Response:
    """Create a tag at a revision."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.create("tags", body.tag, revision)
    return JsonAnswer({}, 201)


@endpoint(router, "DELETE /api/{kind}/{name:repository}/tag/{tag}", REPOSITORY_DELETE)
async def delete_tag(services: Services, kind: str, name: str, tag: Encoded) -> Response:
    """Delete a tag."""
    await (await services.repositories.get(repository_of(kind, name))).remove("tags", tag)
    return JsonAnswer({})


INLINE_BYTES: Final = 10 << 20
"""The size of the largest file that is sent within a commit, in bytes."""
_LINE_BYTES: Final = INLINE_BYTES // 3 * 4 + (64 << 10)
_MOST: Final = 2 * MAX_FILES


@dataclass(frozen=True, slots=True)
class CommitHeader:
    """The first line of a commit."""

    summary: str = ""
    description: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A new file with its bytes."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A new file whose bytes the repository already has. The SHA-256 identifies these bytes."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of a file or of a folder."""

    path: str
    folder: bool


Operation = CommitHeader | InlineFile | KnownFile | Deletion


async def operations_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[Operation]:
    """Yield the operations in order. Raise an error for a malformed or too long line, and for too many lines."""
    count = 0
    async for line in _lines(pieces):
        count += 1
        if count > _MOST:
            raise LimitExceeded(f"Too many operations in one commit (at most {_MOST}): split the commit")
        try:
            yield _operation(parse_json(line))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidInput(f"Line {count} of the commit is not a valid operation") from None


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held = bytearray()
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            held += end
            _check(held)
            if held.strip():
                yield bytes(held)
            held.clear()
        held += rest
        _check(held)
    if held.strip():
        yield bytes(held)


def _check(line: bytearray) -> None:
    if len(line) > _LINE_BYTES:
        raise LimitExceeded(
            f"A line of the commit is too long (at most {_LINE_BYTES} bytes): upload files of more than "
            f"{INLINE_BYTES} bytes before the commit"
        )


def _operation(raw: Any) -> Operation:
    key, value = raw["key"], raw["value"]
    match key:
        case "header":
            return CommitHeader(
                str(value.get("summary") or ""), str(value.get("description") or ""), _text(value.get("parentCommit"))
            )
        case "file":
            encoded = value.get("encoding", "base64") == "base64"
            content = value["content"]
            data = b64decode(content, validate=True) if encoded else content.encode()
            return InlineFile(_path(value), data)
        case "lfsFile" if value.get("algo", "sha256") == "sha256":
            return KnownFile(_path(value), str(value["oid"]))
        case "deletedFile" | "deletedFolder":
            return Deletion(_path(value), key == "deletedFolder")
    raise ValueError(f"Unknown operation {key!r}")


def _path(value: dict[str, Any]) -> str:
    path = value["path"]
    if not isinstance(path, str):
        raise TypeError("Invalid path: use a string")
    return path


def _text(value: object) -> str | None:
    return None if value is None else str(value)

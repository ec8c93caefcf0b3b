"""Routes of the hub for files, branches and history of repositories, as JSON and as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, quote

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded, StorageError
from protoslice.facts import File
from protoslice.file_names import without_version_control
from protoslice.json_text import encode_json
from protoslice.repositories import MAIN, VIEWS, Commit, ComputedFile, NoFile, Ref, Repository, ShownCommit
from protoslice.repositories.git_format import blob_id, is_plain, pointer_of
from protoslice.repositories.git_history import plain_ids
from protoslice.repositories.repository import last_commits
from protoslice.server.api.json_answers import next_page
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.permissions import READ
from protoslice.server.auth.spaces import url_of
from protoslice.server.context import context_of
from protoslice.server.http.headers import Headers, media_type_of, read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.hub.cards import CARD, Card, cards_of, known_of
from protoslice.server.registries.hub.paths import USER, Encoded, render_hub, repository_of, split_kind
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False)

_PAGE: Final = 1000
_EXPANDED: Final = 50
"""The maximum number of files in a page that also shows their last commits."""
_COMMITS: Final = 50
_FILE_BYTES: Final = 200

Flag = Annotated[bool, Query()]
Entry = tuple[str, File | None]
"""The path and the facts of a file; for a folder, the path and None."""


class PathsBody(BaseModel):
    """The paths of files and folders whose facts a client requests."""

    paths: Annotated[list[str], Field(max_length=MAX_FILES)] | str
    expand: bool = False


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """The query parameters of a tree. The cursor is the last path of the previous page."""

    recursive: Flag = False
    expand: Flag = False
    cursor: str = ""


async def _found(services: Services, kind: str, name: str) -> Repository:
    return await services.repositories.find(repository_of(kind, name))


@endpoint(router, "GET /api/{kind}/{name:repository}/tree/{revision}", READ)
@endpoint(router, "GET /api/{kind}/{name:repository}/tree/{revision}/{folder:path}", READ)
async def list_tree(
    request: Request,
    services: Services,
    kind: str,
    name: str,
    revision: Encoded,
    asked: Annotated[TreeQuery, Depends()],
    folder: Encoded = "",
) -> Response:
    """Return a page of files and folders."""
    repository = await _found(services, kind, name)
    commit = await repository.shown(revision)
    files = await commit.files(services.stores)

    def page() -> list[Entry]:
        entries = entries_of(files, folder.strip("/"), recursive=asked.recursive)
        return [entry for entry in entries if entry[0] > asked.cursor][: size + 1]

    size = _EXPANDED if asked.expand else _PAGE
    found = await services.stores.worker.run_if_large(_weight(files), page)
    body = await _listed(repository, commit, files, found[:size], expand=asked.expand)
    last = found[size - 1][0] if len(found) > size else None
    return _json(body, {"x-repo-commit": commit.id} | next_page(request.scope, last, absolute=True))


async def _listed(
    repository: Repository, shown: ShownCommit, files: Mapping[str, File], entries: Sequence[Entry], *, expand: bool
) -> bytes:
    """Return the JSON of some files and folders of a commit."""
    ids = await plain_ids(repository, shown.commit.store, {path: file for path, file in entries if file is not None})
    paths = [path for path, _ in entries]
    last = await last_commits(repository, shown.commit, paths) if expand else None
    weight = _FILE_BYTES * len(entries)
    return await repository.stores.worker.run_if_large(weight, lambda: encode_json(listed_json(entries, ids, last)))


@endpoint(router, "POST /api/{kind}/{name:repository}/paths-info/{revision}", READ)
async def get_paths_info(request: Request, services: Services, kind: str, name: str, revision: Encoded) -> Response:
    """Return the files and folders at the requested paths. Unknown paths are left out."""
    body = await request.body()
    read = _paths_in_json if media_type_of(read_fields(request.scope)) == "application/json" else _paths_in_form
    wanted, expand = await services.stores.worker.run_if_large(_FILE_BYTES * len(body), lambda: read(body))
    if expand and len(wanted) > _PAGE:
        raise LimitExceeded(f"Too many paths with `expand`: {len(wanted)}, at most {_PAGE}")
    repository = await _found(services, kind, name)
    shown = await repository.shown(revision)
    files = await shown.files(services.stores)

    def chosen() -> list[Entry]:
        entries = dict(entries_of(files, "", recursive=True))
        return [(path, entries[path]) for path in wanted if path in entries]

    found = await services.stores.worker.run_if_large(_weight(files), chosen)
    return _json(await _listed(repository, shown, files, found, expand=expand))


def _paths_in_json(body: bytes) -> tuple[list[str], bool]:
    """Return each path in a JSON body once, and True if the client requests last commits."""
    try:
        read = PathsBody.model_validate_json(body)
    except ValueError:
        raise InvalidInput(f'Invalid body: send {{"paths": [...]}} with at most {MAX_FILES} paths') from None
    found = [read.paths] if isinstance(read.paths, str) else read.paths
    return list(dict.fromkeys(found)), read.expand


def _paths_in_form(body: bytes) -> tuple[list[str], bool]:
    """Return each path in a form once, and True if the client requests last commits."""
    try:
        found = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FILES)
    except ValueError:
        raise InvalidInput(f"Invalid body: send a form with at most {MAX_FILES} fields named `paths`") from None
    paths = list(dict.fromkeys(value for key, value in found if key == "paths"))
    return paths, ("expand", "true") in {(key, value.lower()) for key, value in found}


@endpoint(router, "GET /api/{kind}/{name:repository}/refs", READ)
async def list_refs(services: Services, kind: str, name: str) -> Response:
    """Return the branches and tags, and the views of branches and tags."""
    repository = await _found(services, kind, name)
    return JsonAnswer(refs_json([ref async for ref in repository.refs()]))


@endpoint(router, "GET /api/{kind}/{name:repository}/commits/{revision}", READ)
async def list_commits(
    request: Request, services: Services, kind: str, name: str, revision: Encoded, cursor: str | None = None
) -> Response:
    """Return a page of the history, newest commit first."""
    repository = await _found(services, kind, name)
    newest = (await repository.shown(revision)).commit
    page = await repository.history(newest, limit=_COMMITS, cursor=cursor)
    headers = {**next_page(request.scope, page.next, absolute=True), "x-total-count": str(repository.count(newest))}
    return JsonAnswer([commit_json(commit) for commit in page.items], headers=headers)


@endpoint(router, "GET /api/{kind}/{name:repository}/revision/{revision}", READ)
@endpoint(router, "GET /api/{kind}/{name:repository}", READ)
async def get_repository(
    services: Services, kind: str, name: str, revision: Encoded = MAIN, blobs: Flag = False
) -> Response:
    """Return a repository and its files at a revision. With `blobs`, the files have sizes and digests."""
    repository = await _found(services, kind, name)
    commit = await repository.shown(revision)
    files = await commit.files(services.stores)
    shown = repository.name.removeprefix("datasets/")
    ids = await plain_ids(repository, commit.commit.store, files) if blobs else None
    card, dataset = Card(), kind == "datasets"
    if (store := commit.commit.store) is not None and CARD in files:
        with suppress(StorageError):  # the other facts of the repository do not depend on the card
            card = (await cards_of(services.stores, [store]))[0].get(store, card)

    def listed() -> bytes:
        private = services.state.authenticator.closed
        return encode_json(
            info_json(shown, repository.created, commit, files, ids, card, dataset=dataset, private=private)
        )

    return _json(await services.stores.worker.run_if_large(_weight(files), listed))


def _weight(files: Mapping[str, File]) -> int:
    """Return the approximate size of the JSON about files, in bytes."""
    return sum(map(len, files)) + _FILE_BYTES * len(files)


def _json(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, headers=dict(headers or {}), media_type="application/json")


@endpoint(router, "GET /api/whoami-v2", READ)
async def get_user() -> Response:
    """Return one fixed user for every token.

    The service still distinguishes callers, but this protocol needs a name.
    """
    token = {"displayName": "token", "role": "write"}
    named = {"type": "user", "id": USER, "name": USER, "fullname": USER}
    return JsonAnswer({**named, "isPro": False, "orgs": [], "auth": {"type": "access_token", "accessToken": token}})


@endpoint(router, "GET /{name:repository_of_kind}/raw/{revision}/{path:path}", READ)
@endpoint(router, "GET /{name:repository_of_kind}/resolve/{revision}/{path:path}", READ)
async def get_file(request: Request, services: Services, name: str, revision: Encoded, path: Encoded) -> Response:
    """Serve a file of a repository."""
    repository = await _found(services, *split_kind(name))
    shown = await repository.shown(revision)
    file, store = (await shown.files(services.stores)).get(path), shown.commit.store
    if file is None or store is None:
        raise NoFile(path, shown.id)
    context_of(request.scope).store = store
    if isinstance(file, ComputedFile):
        location = f"/{quote(repository.name)}/resolve/{shown.id}/{quote(path)}"
        return RepresentationResponse(file.content, _about(file, shown.id), location=url_of(request.scope, location))
    rope = (await services.stores.view(store)).file(path)
    location = url_of(request.scope, f"/v1/stores/{store}/files/{quote(path)}")
    return RepresentationResponse(rope, _about(file, shown.id), location=location)


def _about(file: File, commit: str) -> Headers:
    """Return the headers in which clients find the commit, digest and size of a file."""
    told = [(b"x-repo-commit", commit.encode()), (b"x-linked-size", b"%d" % file.size)]
    tag = file.tag if isinstance(file, ComputedFile) else file.sha256
    if tag is not None:
        told.append((b"x-linked-etag", b'"%b"' % tag.encode()))
    if not file.size:  # a range of an empty file gets a 200, and some clients read the size only from content-range
        told.append((b"content-range", b"bytes */0"))
    return told


Ids = Mapping[str, str]
"""The git ids of small text files by SHA-256. All other files have git-lfs ids."""


def file_json(file: File, ids: Ids) -> dict[str, Any]:
    """Return a file with its git id. A git-lfs file also has `lfs`, which clients use to copy the file."""
    return {"type": "file", "path": file.path, "size": file.size, **_identity(file, ids, "oid", "oid")}


def _sibling_json(file: File, ids: Ids | None) -> dict[str, Any]:
    """Return the entry of a file in a repository's description, with size and ids if `ids` are passed.

    The digest has a different name in this entry than in `file_json`.
    """
    if ids is None:
        return {"rfilename": file.path}
    return {"rfilename": file.path, "size": file.size, **_identity(file, ids, "blobId", "sha256")}


def _identity(file: File, ids: Ids, blob: str, digest: str) -> dict[str, Any]:
    if isinstance(file, ComputedFile):
        return {blob: file.tag}
    sha256 = file.sha256 or ""
    if is_plain(file.path, file.size):
        return {blob: ids[sha256]}
    pointer = pointer_of(sha256, file.size)
    lfs = {digest: sha256, "size": file.size, "pointerSize": len(pointer)}
    return {blob: blob_id(pointer), "lfs": lfs}


def _folder_json(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "size": 0, "oid": ""}


def entries_of(files: Mapping[str, File], folder: str, *, recursive: bool) -> list[tuple[str, File | None]]:
    """Return the files and folders below a folder, sorted by path. A folder has None instead of a file.

    Raise `NoFile` if the folder does not exist. The cost depends on the number of entries, because each folder is
    examined once, regardless of how many files it holds.
    """
    prefix = f"{folder}/" if folder else ""
    found: dict[str, File | None] = {}
    for path, file in without_version_control(files).items():
        if not path.startswith(prefix):
            continue
        below = path.find("/", len(prefix))
        if not recursive:
            found[path if below < 0 else path[:below]] = file if below < 0 else None
            continue
        found[path] = file
        parent = path.rpartition("/")[0]
        while len(parent) > len(folder) and parent not in found:
            found[parent] = None
            parent = parent.rpartition("/")[0]
    if folder and not found:
        raise NoFile(folder)
    return sorted(found.items(), key=lambda entry: entry[0])


def listed_json(
    entries: Sequence[tuple[str, File | None]], ids: Ids, last: Mapping[str, Commit] | None = None
) -> list[dict[str, Any]]:
    """Return the files and folders. Each entry has the commit that last changed it, if this commit is known."""

    def shown(path: str, file: File | None) -> dict[str, Any]:
        found = _folder_json(path) if file is None else file_json(file, ids)
        if last is not None and path in last:
            commit = commit_json(last[path])
            found["lastCommit"] = {name: commit[name] for name in ("id", "title", "date")}
        return found

    return [shown(*entry) for entry in entries]


def info_json(
    name: str,
    created: datetime,
    shown: ShownCommit,
    files: Mapping[str, File],
    ids: Ids | None,
    card: Card,
    *,
    dataset: bool,
    private: bool,
) -> dict[str, Any]:
    """Return a repository at a commit or at a commit's view. The files have sizes and ids if `ids` are passed."""
    siblings = [_sibling_json(file, ids) for _, file in sorted(without_version_control(files).items())]
    return {
        "_id": shown.id[:24],
        "id": name,
        "sha": shown.id,
        "private": private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "createdAt": time_text(created),
        "lastModified": time_text(max(shown.commit.time, created)),
        "siblings": siblings,
        **known_of(card, dataset=dataset),
        **({"cardData": card} if card else {}),
    }


def refs_json(refs: Sequence[Ref]) -> dict[str, Any]:
    """Return the branches and tags. The converted branches are the views of those branches and tags that have files.

    There are no pull requests.
    """
    by_kind: dict[str, list[dict[str, str]]] = {"heads": [], "tags": [], "views": []}
    for ref in refs:
        by_kind[ref.kind].append({"name": ref.name, "ref": f"refs/{ref.key}", "targetCommit": ref.commit.id})
        if ref.commit.store is not None:
            view, id = f"{VIEWS}{ref.name}", ShownCommit(ref.commit, viewed=True).id
            by_kind["views"].append({"name": view, "ref": f"refs/{view}", "targetCommit": id})
    return {
        "branches": by_kind["heads"],
        "tags": by_kind["tags"],
        "converts": by_kind["views"],
        "pullRequests": list[object](),
    }


def commit_json(commit: Commit) -> dict[str, Any]:
    """Return a commit of a history as JSON."""
    return {
        "id": commit.id,
        "title": commit.author.title,
        "message": commit.author.message,
        "authors": [{"user": commit.author.user or "anonymous"}],
        "date": time_text(commit.time),
    }


def time_text(time: datetime) -> str:
    """Return a time in UTC with milliseconds, which is the only form that clients parse."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"

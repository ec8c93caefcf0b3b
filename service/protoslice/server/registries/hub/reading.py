"""Routes of the hub that read: repositories, trees, files, refs and history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput
from protoslice.facts import File
from protoslice.json_text import encode_json
from protoslice.repositories import MAIN, ComputedFile, NoFile, Repository
from protoslice.server.access.places import absolute_url, url_of
from protoslice.server.access.rules import READ
from protoslice.server.api.endpoints import endpoint
from protoslice.server.http.headers import Headers, media_type_of, read_fields
from protoslice.server.http.json_bodies import JsonAnswer
from protoslice.server.middleware.context import context_of
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.registries.file_answer import FileAnswer
from protoslice.server.registries.hub.bodies import PathsBody
from protoslice.server.registries.hub.facts import commit_json, entries_of, info_json, listed_json, refs_json
from protoslice.server.registries.hub.failures import HubRoute, answering, failure_of
from protoslice.server.registries.hub.paths import USER, Encoded, repository_of
from protoslice.server.services import Given, Services

router = GuardedRouter(route_class=HubRoute, include_in_schema=False)

_PAGE: Final = 1000
_COMMITS: Final = 50
_FILE_BYTES: Final = 200

Flag = Annotated[bool, Query()]


async def _found(services: Services, kind: str, name: str) -> Repository:
    return await services.repositories.find(repository_of(kind, name))


@endpoint(router, "GET /api/{kind}/{name:repository}/tree/{revision}", READ)
@endpoint(router, "GET /api/{kind}/{name:repository}/tree/{revision}/{folder:path}", READ)
@answering
async def list_tree(
    request: Request,
    services: Given,
    kind: str,
    name: str,
    revision: Encoded,
    folder: Encoded = "",
    recursive: Flag = False,
    cursor: str = "",
) -> Response:
    """A page of files and folders; the cursor is the last path of the page before."""
    repository = await _found(services, kind, name)
    commit = await repository.shown(revision)
    files = await commit.files(services.stores)

    def page() -> tuple[bytes, str | None]:
        entries = entries_of(files, folder.strip("/"), recursive=recursive)
        left = [entry for entry in entries if entry[0] > cursor]
        last = left[_PAGE - 1][0] if len(left) > _PAGE else None
        return encode_json(listed_json(left[:_PAGE])), last

    found, last = await services.stores.worker.sized(_weight(files), page)
    return _json(found, {"x-repo-commit": commit.id} | _next(request, last))


@endpoint(router, "POST /api/{kind}/{name:repository}/paths-info/{revision}", READ)
@answering
async def get_paths_info(request: Request, services: Given, kind: str, name: str, revision: Encoded) -> Response:
    """Files and folders by path; unknown ones are left out."""
    body = await request.body()
    read = _paths_in_json if media_type_of(read_fields(request.scope)) == "application/json" else _paths_in_form
    wanted = await services.stores.worker.sized(_FILE_BYTES * len(body), lambda: read(body))
    repository = await _found(services, kind, name)
    files = await (await repository.shown(revision)).files(services.stores)

    def page() -> bytes:
        entries = dict(entries_of(files, "", recursive=True))
        return encode_json(listed_json([(path, entries[path]) for path in wanted if path in entries]))

    return _json(await services.stores.worker.sized(_weight(files), page))


def _paths_in_json(body: bytes) -> list[str]:
    """Paths of a JSON object, each once."""
    try:
        found = PathsBody.model_validate_json(body).paths
    except ValueError:
        raise InvalidInput(f'Invalid body: send {{"paths": [...]}} with at most {MAX_FILES} paths') from None
    return list(dict.fromkeys([found] if isinstance(found, str) else found))


def _paths_in_form(body: bytes) -> list[str]:
    """Paths of a form, each once."""
    try:
        found = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FILES)
    except ValueError:
        raise InvalidInput(f"Invalid body: send a form with at most {MAX_FILES} fields named `paths`") from None
    return list(dict.fromkeys(value for key, value in found if key == "paths"))


@endpoint(router, "GET /api/{kind}/{name:repository}/refs", READ)
@answering
async def list_refs(services: Given, kind: str, name: str) -> Response:
    """Branches and tags, and their views."""
    repository = await _found(services, kind, name)
    return JsonAnswer(refs_json([ref async for ref in repository.refs()]))


@endpoint(router, "GET /api/{kind}/{name:repository}/commits/{revision}", READ)
@answering
async def list_commits(
    request: Request, services: Given, kind: str, name: str, revision: Encoded, cursor: str | None = None
) -> Response:
    """A page of history, newest first."""
    repository = await _found(services, kind, name)
    page = await repository.history((await repository.shown(revision)).commit, limit=_COMMITS, cursor=cursor)
    return JsonAnswer([commit_json(commit) for commit in page.items], headers=_next(request, page.next))


@endpoint(router, "GET /api/{kind}/{name:repository}/revision/{revision}", READ)
@endpoint(router, "GET /api/{kind}/{name:repository}", READ)
@answering
async def get_repository(services: Given, kind: str, name: str, revision: Encoded = MAIN) -> Response:
    """A repository and its files at a revision."""
    repository = await _found(services, kind, name)
    commit = await repository.shown(revision)
    files = await commit.files(services.stores)
    shown = repository.name.removeprefix("datasets/")
    told = await services.stores.worker.sized(
        _weight(files), lambda: encode_json(info_json(shown, repository.created, commit, files))
    )
    return _json(told)


def _weight(files: Mapping[str, File]) -> int:
    """Bytes of JSON that tell of files, about."""
    return sum(map(len, files)) + _FILE_BYTES * len(files)


def _json(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, headers=dict(headers or {}), media_type="application/json")


@endpoint(router, "GET /api/whoami-v2", READ)
async def get_user() -> Response:
    """The user of a token; the gate of the service tells users apart, this protocol only names one."""
    token = {"displayName": "token", "role": "write"}
    named = {"type": "user", "id": USER, "name": USER, "fullname": USER}
    return JsonAnswer({**named, "isPro": False, "orgs": [], "auth": {"type": "access_token", "accessToken": token}})


@endpoint(router, "GET /datasets/{name:repository}/raw/{revision}/{path:path}", READ)
@endpoint(router, "GET /datasets/{name:repository}/resolve/{revision}/{path:path}", READ)
@answering
async def get_dataset_file(request: Request, services: Given, name: str, revision: Encoded, path: Encoded) -> Response:
    """A file of a dataset."""
    return await _file(request, services, await _found(services, "datasets", name), revision, path)


@endpoint(router, "GET /{name:repository}/raw/{revision}/{path:path}", READ)
@endpoint(router, "GET /{name:repository}/resolve/{revision}/{path:path}", READ)
@answering
async def get_model_file(request: Request, services: Given, name: str, revision: Encoded, path: Encoded) -> Response:
    """A file of a model."""
    return await _file(request, services, await _found(services, "models", name), revision, path)


async def _file(request: Request, services: Services, repository: Repository, revision: str, path: str) -> Response:
    shown = await repository.shown(revision)
    file, store = (await shown.files(services.stores)).get(path), shown.commit.store
    if file is None or store is None:
        raise failure_of(NoFile(path), shown.id)
    context_of(request.scope).store = store
    if isinstance(file, ComputedFile):
        location = f"/{quote(repository.name)}/resolve/{shown.id}/{quote(path)}"
        return FileAnswer(file.content, _about(file, shown.id), location=url_of(request.scope, location))
    rope = (await services.stores.view(store)).file(path)
    location = url_of(request.scope, f"/v1/stores/{store}/files/{quote(path)}")
    return FileAnswer(rope, _about(file, shown.id), location=location)


def _next(request: Request, cursor: str | None) -> dict[str, str]:
    """The header that names the next page; empty on the last page."""
    if cursor is None:
        return {}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    path: str = request.scope["path"].removeprefix(request.scope["root_path"])
    url = absolute_url(request.scope, quote(path, safe="/%"))
    return {"link": f'<{url}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'}


def _about(file: File, commit: str) -> Headers:
    """Headers by which clients know commit, digest and size."""
    told = [(b"x-repo-commit", commit.encode()), (b"x-linked-size", b"%d" % file.size)]
    tag = file.tag if isinstance(file, ComputedFile) else file.sha256
    if tag is not None:
        told.append((b"x-linked-etag", b'"%b"' % tag.encode()))
    if not file.size:  # a range of an empty file is answered with 200, and some clients read the size here alone
        told.append((b"content-range", b"bytes */0"))
    return told

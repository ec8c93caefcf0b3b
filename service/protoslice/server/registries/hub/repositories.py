"""Routes of the hub to list, create, rename and set up repositories, and the pages whose links clients print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from protoslice.catalog.repositories import WALKED, ListedRepository, RepositoryListing
from protoslice.catalog.syntax import check_repository
from protoslice.database.transactions import time_of
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.facts import File
from protoslice.file_names import without_version_control
from protoslice.json_text import encode_json
from protoslice.repositories import MAIN, Author, Commit, RepositoryExists
from protoslice.repositories.change import files_of
from protoslice.server.api.json_answers import next_page
from protoslice.server.auth.permissions import (
    DELETE,
    HUB_WRITE,
    OPEN,
    READ,
    Rule,
    Scope,
    from_body,
    from_repository,
)
from protoslice.server.auth.spaces import url_of
from protoslice.server.http.headers import read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.problems import CONFLICT, NO_RESOURCE, HttpProblem
from protoslice.server.registries.hub.cards import CARD_BYTES, cards_of, known_of
from protoslice.server.registries.hub.files import time_text
from protoslice.server.registries.hub.paths import (
    NO_PULL_REQUESTS,
    USER,
    Encoded,
    Text,
    render_hub,
    repository_of,
    repository_url,
)
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

_PAGE: Final = 1000
_FILES: Final = 20_000
"""The approximate limit on the number of files in a page that lists repositories with their files."""
_FILE_BYTES: Final = 200
_LOOKED_AT: Final = 100
"""The number of repositories whose cards are read together."""
_CARD_BYTES: Final = 100 * CARD_BYTES
"""The approximate limit on card bytes for a page.

This suffices for 100 unread cards, or for the saved metadata of more cards.
"""
_LONGEST: Final = 200
_EQUAL: Final = frozenset({"downloads", "likes", "likes30d", "trendingScore", "id"})
"""Sort keys with the same value for all repositories. Lists with such a key are sorted by name."""
_BY_TIME: Final = frozenset({"createdAt", "lastModified"})
_Word = Annotated[str, Query(max_length=_LONGEST)]
_Words = Annotated[list[Annotated[str, Field(max_length=_LONGEST)]], Query(default_factory=list, max_length=50)]
Entry = tuple[ListedRepository, dict[str, Any]]
"""A repository, and the JSON entry that shows it."""
_ELSEWHERE: Final = "its operator can require tokens, and limit them to a separate space"
_VERSION: Final = re.compile(r"v[0-9]+/")
"""The beginning of a path for another version of the API."""

# Lists are strict, because an unknown parameter may be a filter.
lists = RouteGroup(render=render_hub, include_in_schema=False)
router = RouteGroup(render=render_hub, strict=False, include_in_schema=False, dependencies=[NO_PULL_REQUESTS])
pages = RouteGroup(render=render_hub, strict=False, include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The query parameters of a list.

    `apps` and the parameters after `apps` are refused, because the service lacks the facts for these filters.
    """

    author: _Word = ""
    search: _Words
    filter: _Words
    tags: _Words
    library: _Words
    pipeline_tag: _Word = ""
    sort: _Word = ""
    direction: _Word = "-1"
    limit: Annotated[int, Query(ge=0)] = _PAGE
    full: bool = False
    expand: _Words
    config: bool = False
    cardData: bool = False  # noqa: N815 - the protocol's name
    cursor: Annotated[str, Query(max_length=2 * _LONGEST)] = ""
    gated: bool = False
    apps: _Words
    inference: _Word = ""
    inference_provider: _Words
    num_parameters: _Word = ""

    def check(self) -> None:
        """Raise `Unsupported` for filters and sort keys that are not supported."""
        names = [each.name for each in fields(self)]
        for name in names[names.index("apps") :]:
            if getattr(self, name):
                raise Unsupported(f"{name!r} is not supported: use author, search, filter or pipeline_tag")
        if self.sort and self.sort not in _EQUAL | _BY_TIME:
            raise Unsupported(f"Cannot sort by {self.sort!r}: use createdAt or lastModified")

    @property
    def filters(self) -> set[str]:
        """The tags that a repository must have."""
        return {*self.filter, *self.tags, *self.library}


@endpoint(lists, "GET /api/models", READ)
@endpoint(lists, "GET /api/datasets", READ)
async def list_repositories(request: Request, services: Services, asked: Annotated[ListQuery, Depends()]) -> Response:
    """List a page of models or datasets, sorted by name unless the sort key is a time."""
    asked.check()
    datasets = request.scope["route"].path == "/api/datasets"
    if asked.gated:  # no repository is gated
        return JsonAnswer([])
    stores = services.stores
    prefix = f"{asked.author}/" if asked.author else ""
    searched = [each.casefold() for each in asked.search]
    listing = RepositoryListing(
        stores.database, stores.space, prefix, max(searched, key=len, default=""), datasets=datasets
    )
    by_time = asked.sort in _BY_TIME
    walked = await listing.rows("" if by_time else asked.cursor)
    found = [row for row in walked if all(each in _shown(row).casefold() for each in searched)]
    if by_time:
        if len(walked) == WALKED:
            raise LimitExceeded(f"Too many repositories to sort by {asked.sort}: give author= or search=")
        found = _behind(_sorted(found, asked), asked)
    most = min(asked.limit, _PAGE)
    page, last = await _page(services, found, asked, most, datasets=datasets)
    if asked.full or "siblings" in asked.expand:
        files = await _files(services, [row for row, _ in page])
        for (_, entry), paths in zip(page, files, strict=False):
            entry["siblings"] = [{"rfilename": path} for path in paths]
        if len(files) < len(page):
            page, last = page[: len(files)], page[len(files) - 1][0]
    cursor = None if last is None else _key(last, asked) if by_time else last.name
    if last is None and len(walked) == WALKED and most:
        cursor = walked[-1].name
    body = await stores.worker.run(lambda: encode_json([entry for _, entry in page]))
    return JsonAnswer(body, headers=next_page(request.scope, cursor, absolute=True))


async def _page(
    services: Services, found: Sequence[ListedRepository], asked: ListQuery, most: int, *, datasets: bool
) -> tuple[list[Entry], ListedRepository | None]:
    """Return the entries of a page, at most `most`, and the last examined repository if more repositories follow."""
    page, looked, size = list[Entry](), 0, 0
    step = _LOOKED_AT if asked.filters or asked.pipeline_tag else min(most, _LOOKED_AT)
    while looked < len(found) and len(page) < most and size < _CARD_BYTES:
        rows = found[looked : looked + step]
        cards, read = await cards_of(services.stores, [row.store for row in rows if row.store is not None])
        size += read
        for row in rows:
            looked += 1
            card = cards.get(row.store or "", {})
            known = known_of(card, dataset=datasets)
            if asked.filters <= set(known["tags"]) and asked.pipeline_tag in {"", known.get("pipeline_tag")}:
                shown = {"cardData": card} if card and (asked.cardData or "cardData" in asked.expand) else {}
                page.append((row, _json(row, private=services.state.authenticator.closed) | known | shown))
            if len(page) == most:
                break
    return page, found[looked - 1] if 0 < looked < len(found) else None


def _json(row: ListedRepository, *, private: bool) -> dict[str, Any]:
    name = _shown(row)
    return {
        "_id": f"{row.id:024x}",
        "id": name,
        "modelId": name,
        "author": name.partition("/")[0],
        "sha": Commit(store=row.store).id,
        "private": private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "createdAt": time_text(time_of(row.created)),
        "lastModified": time_text(time_of(row.updated)),
    }


def _shown(row: ListedRepository) -> str:
    return row.name.removeprefix("datasets/")


def _sorted(found: list[ListedRepository], asked: ListQuery) -> list[ListedRepository]:
    if asked.direction not in {"-1", "1"}:
        raise InvalidInput(f"Invalid direction {asked.direction!r}: use -1 or 1")
    return sorted(found, key=lambda row: (_time(row, asked), row.name), reverse=asked.direction == "-1")


def _behind(found: list[ListedRepository], asked: ListQuery) -> list[ListedRepository]:
    """Return the entries after the cursor's place. The entry that the cursor names may have been deleted."""
    time, _, name = asked.cursor.partition(" ")
    if not asked.cursor:
        return found
    if not time.isdecimal():
        raise InvalidInput("the cursor is not one that this service returned")
    place = (int(time), name)
    if asked.direction == "-1":
        return [row for row in found if (_time(row, asked), row.name) < place]
    return [row for row in found if (_time(row, asked), row.name) > place]


def _time(row: ListedRepository, asked: ListQuery) -> int:
    return row.created if asked.sort == "createdAt" else row.updated


def _key(row: ListedRepository, asked: ListQuery) -> str:
    return f"{_time(row, asked)} {row.name}"


async def _files(services: Services, page: list[ListedRepository]) -> list[list[str]]:
    """Return the paths of the files of repositories, up to a limit."""
    found, count = list[list[str]](), 0
    for row in page:
        files: Mapping[str, File] = {}
        with suppress(NotFound):  # the store was removed
            files = await files_of(services.stores, Commit(store=row.store))
        weight = _FILE_BYTES * len(files)
        found.append(await services.stores.worker.run_if_large(weight, lambda: sorted(without_version_control(files))))  # noqa: B023
        count += len(files)
        if count > _FILES:
            break
    return found


class VisibilityBody(BaseModel):
    """The visibility of a repository."""

    private: bool | None = None
    visibility: Text | None = None
    gated: bool | Text | None = None
    resourceGroupId: Text | None = None  # noqa: N815 - the protocol's name

    def check(self, *, closed: bool) -> None:
        """Raise `Unsupported` for a visibility that repositories cannot have.

        On a `closed` service, which requires tokens, repositories are private.
        """
        if self.gated or self.resourceGroupId or self.visibility not in {None, "public", "private"}:
            raise Unsupported(f"Repositories cannot be gated, protected or in resource groups: {_ELSEWHERE}")
        if (self.private or self.visibility == "private") and not closed:
            raise Unsupported(f"Repositories cannot be private on a service that is open to everyone: {_ELSEWHERE}")


class RepositoryBody(VisibilityBody):
    """The name of a repository."""

    name: Text
    organization: Text | None = None
    type: Text | None = None


class MoveBody(VisibilityBody):
    """The old and the new name of a repository."""

    fromRepo: Text  # noqa: N815 - the protocol's name
    toRepo: Text  # noqa: N815 - the protocol's name
    type: Text | None = None


class SquashBody(BaseModel):
    """The message of the commit that replaces a branch's history."""

    message: str | None = None


@endpoint(router, "POST /api/repos/create", Rule(Scope.WRITE, tags=from_body))
async def create_repository(request: Request, services: Services, body: RepositoryBody) -> Response:
    """Create a repository. The answer has its URL, even if the repository exists already."""
    name = _name_of(body)
    body.check(closed=services.state.authenticator.closed)
    services.auth.require(Scope.WRITE, tags=[name.removeprefix("datasets/")])
    answer = {"url": repository_url(request.scope, name), "name": name}
    try:
        await services.repositories.create(name)
    except RepositoryExists as error:
        there = error.current if services.auth.may(Scope.READ) else name
        answer = {"url": repository_url(request.scope, there), "name": there}
        return JsonAnswer({**answer, "error": error.message}, CONFLICT.status)
    return JsonAnswer(answer)


@endpoint(router, "DELETE /api/repos/delete", DELETE)
async def delete_repository(services: Services, body: RepositoryBody) -> Response:
    """Delete a repository and its history."""
    await services.repositories.remove(_name_of(body))
    return JsonAnswer({})


@endpoint(router, "POST /api/validate-yaml", OPEN)
async def validate_metadata(request: Request) -> Response:
    """Accept the metadata of any model card, because the service does not depend on it."""
    await request.body()
    return JsonAnswer({"errors": [], "warnings": []})


def _name_of(body: RepositoryBody) -> str:
    """Return the full name of the repository in a body."""
    # Clients from version 1.0 on refuse URLs of repositories without an owner.
    owned = body.name if "/" in body.name else f"{body.organization or USER}/{body.name}"
    return repository_of(f"{body.type or 'model'}s", owned)


@endpoint(router, "GET /api/{kind}/{name:repository}/auth-check", READ)
async def check_read(services: Services, kind: str, name: str) -> Response:
    """Respond with success if the caller may read a repository."""
    await services.repositories.find(repository_of(kind, name))
    return JsonAnswer({})


@endpoint(router, "GET /api/{kind}/{name:repository}/auth-check/write", HUB_WRITE)
async def check_write(services: Services, kind: str, name: str) -> Response:
    """Respond with success if the caller may write to a repository."""
    await services.repositories.get(repository_of(kind, name))
    return JsonAnswer({})


@endpoint(
    router,
    "POST /api/{kind}/{name:repository}/super-squash/{branch}",
    Rule(Scope.DELETE, tags=from_repository, reads=True),
)
async def squash_branch(services: Services, kind: str, name: str, branch: Encoded, body: SquashBody) -> Response:
    """Replace a branch's history by one commit with the branch's files.

    Commits that no other branch or tag leads to are deleted.
    """
    repository = await services.repositories.get(repository_of(kind, name))
    made = await repository.squash(branch, Author(body.message or f"Squash {branch!r}"))
    return JsonAnswer({"commitOid": made.id})


@endpoint(router, "POST /api/repos/move", Rule(Scope.DELETE, tags=from_body))
async def move_repository(services: Services, body: MoveBody) -> Response:
    """Rename a repository. The old name leads to the repository until another repository takes that name."""
    body.check(closed=services.state.authenticator.closed)
    services.auth.require(Scope.DELETE, tags=[body.fromRepo])
    services.auth.require(Scope.WRITE, tags=[body.toRepo])
    kind = f"{body.type or 'model'}s"
    await services.repositories.rename(repository_of(kind, body.fromRepo), repository_of(kind, body.toRepo))
    return JsonAnswer({})


@endpoint(router, "PUT /api/{kind}/{name:repository}/settings", HUB_WRITE)
async def change_settings(services: Services, kind: str, name: str, body: VisibilityBody) -> Response:
    """Accept settings if they equal the settings that every repository has."""
    await services.repositories.get(repository_of(kind, name))
    body.check(closed=services.state.authenticator.closed)
    return JsonAnswer({"private": services.state.authenticator.closed, "gated": False})


@endpoint(router, "GET /api/{kind}/{name:repository}/compare/{revisions:path}", READ)
async def compare(request: Request, kind: str, name: str, revisions: str) -> Response:
    """Refuse to compare the texts of two revisions."""
    raise Unsupported("Text diffs are not supported: use GET /v1/stores/NAME@NEW/diff?before=NAME@OLD")


@endpoint(pages, "GET /{name:owned}/tree/{revision}", OPEN)
@endpoint(pages, "GET /{name:owned}/tree/{revision}/{path:path}", OPEN)
@endpoint(pages, "GET /{name:owned}/blob/{revision}/{path:path}", OPEN)
@endpoint(pages, "GET /{name:owned}/commit/{revision}", OPEN)
@endpoint(pages, "GET /{name:owned}", OPEN)
async def show(request: Request, name: Encoded, revision: Encoded = MAIN) -> Response:
    """Redirect a browser to the page of a repository at a revision. The redirect reads nothing from the storage."""
    fields = read_fields(request.scope)
    if _VERSION.match(name) or "html" not in fields.get(b"accept", "").lower():
        raise HttpProblem(NO_RESOURCE, f"{NO_RESOURCE.advice} Pages of repositories are for browsers.")
    shown = quote(f"{check_repository(name)}@{revision}", safe="")
    return RedirectResponse(url_of(request.scope, f"/m/{shown}"), 302, {"vary": "accept"})

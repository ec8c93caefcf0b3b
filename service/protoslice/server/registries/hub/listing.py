"""Routes of the hub that list repositories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request
from starlette.responses import Response

from protoslice.catalog.database import time_of
from protoslice.catalog.repository_listing import WALKED, ListedRepository, RepositoryListing
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.file_names import without_version_control
from protoslice.repositories import Commit
from protoslice.repositories.change import files_of
from protoslice.server.access.rules import READ
from protoslice.server.api.endpoints import endpoint
from protoslice.server.http.json_bodies import JsonAnswer
from protoslice.server.middleware.guarded_route import GuardedRouter
from protoslice.server.registries.hub.facts import time_text
from protoslice.server.registries.hub.failures import HubRoute, answering
from protoslice.server.registries.hub.paths import next_page
from protoslice.server.services import Given, Services

router = GuardedRouter(route_class=HubRoute, include_in_schema=False)

_PAGE: Final = 1000
_FILES: Final = 20_000
"""Files of a page, about, if they are listed with their repositories."""
_LONGEST: Final = 200
_EQUAL: Final = frozenset({"downloads", "likes", "likes30d", "trendingScore", "id"})
"""Sort keys that are the same for all repositories, which are sorted by name then."""
_BY_TIME: Final = frozenset({"createdAt", "lastModified"})
_Text = Annotated[str, Query(max_length=_LONGEST)]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Parameters of a list; `filter` and those after it would leave out what is not known here."""

    author: _Text = ""
    search: _Text = ""
    sort: _Text = ""
    direction: _Text = "-1"
    limit: Annotated[int, Query(ge=0)] = _PAGE
    full: bool = False
    expand: Annotated[Sequence[str], Query(max_length=50)] = ()
    cursor: Annotated[str, Query(max_length=2 * _LONGEST)] = ""
    gated: bool = False
    filter: _Text = ""
    pipeline_tag: _Text = ""
    apps: _Text = ""
    inference: _Text = ""
    inference_provider: _Text = ""
    num_parameters: _Text = ""

    def check(self) -> None:
        """Raise `Unsupported` for filters and sort keys that are not supported."""
        names = [each.name for each in fields(self)]
        for name in names[names.index("filter") :]:
            if getattr(self, name):
                raise Unsupported(f"{name!r} is not supported: filter by author and search")
        if self.sort and self.sort not in _EQUAL | _BY_TIME:
            raise Unsupported(f"Cannot sort by {self.sort!r}: use createdAt or lastModified")


@endpoint(router, "GET /api/models", READ)
@answering
async def list_models(request: Request, services: Given, asked: Annotated[ListQuery, Depends()]) -> Response:
    """A page of models, by name unless a time is the sort key."""
    return await _listed(request, services, asked, datasets=False)


@endpoint(router, "GET /api/datasets", READ)
@answering
async def list_datasets(request: Request, services: Given, asked: Annotated[ListQuery, Depends()]) -> Response:
    """A page of datasets, by name unless a time is the sort key."""
    return await _listed(request, services, asked, datasets=True)


async def _listed(request: Request, services: Services, asked: ListQuery, *, datasets: bool) -> Response:
    asked.check()
    if asked.gated:  # none is
        return JsonAnswer([])
    stores = services.stores
    prefix = f"{asked.author}/" if asked.author else ""
    listing = RepositoryListing(stores.database, stores.space, prefix, asked.search, datasets=datasets)
    by_time = asked.sort in _BY_TIME
    walked = await listing.rows("" if by_time else asked.cursor)
    found = [row for row in walked if asked.search.casefold() in _shown(row).casefold()]
    if by_time:
        if len(walked) == WALKED:
            raise LimitExceeded(f"Too many repositories to sort by {asked.sort}: give author= or search=")
        found = _behind(_sorted(found, asked), asked)
    most = min(asked.limit, _PAGE)
    page, files = found[:most], list[list[str]]()
    if asked.full or "siblings" in asked.expand:
        files = await _files(services, page)
        page = page[: len(files)]
    last = page[-1] if page and len(page) < len(found) else None
    cursor = None if last is None else _key(last, asked) if by_time else last.name
    if last is None and len(walked) == WALKED and most:
        cursor = walked[-1].name
    items = [_json(row, private=services.gate.closed) for row in page]
    for each, paths in zip(items, files, strict=False):
        each["siblings"] = [{"rfilename": path} for path in paths]
    return JsonAnswer(items, headers=next_page(request, cursor))


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
        "tags": [],
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
    """Those behind the place of a cursor, which may be gone by now."""
    time, _, name = asked.cursor.partition(" ")
    if not asked.cursor:
        return found
    if not time.isdecimal():
        raise InvalidInput("this cursor was not given by this service")
    place = (int(time), name)
    if asked.direction == "-1":
        return [row for row in found if (_time(row, asked), row.name) < place]
    return [row for row in found if (_time(row, asked), row.name) > place]


def _time(row: ListedRepository, asked: ListQuery) -> int:
    return row.created if asked.sort == "createdAt" else row.updated


def _key(row: ListedRepository, asked: ListQuery) -> str:
    return f"{_time(row, asked)} {row.name}"


async def _files(services: Services, page: list[ListedRepository]) -> list[list[str]]:
    """Paths of the files of repositories, until they are many."""
    found, count = list[list[str]](), 0
    for row in page:
        try:
            paths = sorted(without_version_control(await files_of(services.stores, Commit(store=row.store))))
        except NotFound:  # the store was removed
            paths = []
        found.append(paths)
        count += len(paths)
        if count > _FILES:
            break
    return found

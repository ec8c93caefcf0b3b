"""Routes of the hub that list repositories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from protoslice.catalog.repositories import WALKED, ListedRepository, RepositoryListing
from protoslice.database.transactions import time_of
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.facts import File
from protoslice.file_names import without_version_control
from protoslice.repositories import Commit
from protoslice.repositories.change import files_of
from protoslice.server.api.json_answers import next_page
from protoslice.server.auth.permissions import READ
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.hub.cards import CARD_BYTES, cards_of, known_of
from protoslice.server.registries.hub.facts import time_text
from protoslice.server.registries.hub.failures import render_hub
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Given, Services

_PAGE: Final = 1000
_FILES: Final = 20_000
"""Files of a page, about, if they are listed with their repositories."""
_FILE_BYTES: Final = 200
_LOOKED_AT: Final = 100
"""Repositories whose cards are looked at together."""
_CARD_BYTES: Final = 100 * CARD_BYTES
"""Bytes of cards of a page, about: those of 100 cards that were never read, or kept metadata of more."""
_LONGEST: Final = 200
_EQUAL: Final = frozenset({"downloads", "likes", "likes30d", "trendingScore", "id"})
"""Sort keys that are the same for all repositories, which are sorted by name then."""
_BY_TIME: Final = frozenset({"createdAt", "lastModified"})
_Text = Annotated[str, Query(max_length=_LONGEST)]
_Texts = Annotated[list[Annotated[str, Field(max_length=_LONGEST)]], Query(default_factory=list, max_length=50)]
Entry = tuple[ListedRepository, dict[str, Any]]
"""A repository, and the entry that shows it."""


# Strict: an unknown parameter of a list may be a filter.
router = RouteGroup(render=render_hub, include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Parameters of a list; `apps` and those after it would leave out what is not known here."""

    author: _Text = ""
    search: _Texts
    filter: _Texts
    tags: _Texts
    library: _Texts
    pipeline_tag: _Text = ""
    sort: _Text = ""
    direction: _Text = "-1"
    limit: Annotated[int, Query(ge=0)] = _PAGE
    full: bool = False
    expand: _Texts
    config: bool = False
    cardData: bool = False  # noqa: N815 - the protocol's name
    cursor: Annotated[str, Query(max_length=2 * _LONGEST)] = ""
    gated: bool = False
    apps: _Texts
    inference: _Text = ""
    inference_provider: _Texts
    num_parameters: _Text = ""

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
        """Tags that a repository has to have."""
        return {*self.filter, *self.tags, *self.library}


@endpoint(router, "GET /api/models", READ)
async def list_models(request: Request, services: Given, asked: Annotated[ListQuery, Depends()]) -> Response:
    """A page of models, by name unless a time is the sort key."""
    return await _listed(request, services, asked, datasets=False)


@endpoint(router, "GET /api/datasets", READ)
async def list_datasets(request: Request, services: Given, asked: Annotated[ListQuery, Depends()]) -> Response:
    """A page of datasets, by name unless a time is the sort key."""
    return await _listed(request, services, asked, datasets=True)


async def _listed(request: Request, services: Services, asked: ListQuery, *, datasets: bool) -> Response:
    asked.check()
    if asked.gated:  # none is
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
    return JsonAnswer([entry for _, entry in page], headers=next_page(request.scope, cursor, absolute=True))


async def _page(
    services: Services, found: Sequence[ListedRepository], asked: ListQuery, most: int, *, datasets: bool
) -> tuple[list[Entry], ListedRepository | None]:
    """Return entries of a page, at most `most`, and the last repository looked at if there are more."""
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
                page.append((row, _json(row, private=services.authenticator.closed) | known | shown))
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
        files: Mapping[str, File] = {}
        with suppress(NotFound):  # the store was removed
            files = await files_of(services.stores, Commit(store=row.store))
        weight = _FILE_BYTES * len(files)
        found.append(await services.stores.worker.sized(weight, lambda: sorted(without_version_control(files))))  # noqa: B023
        count += len(files)
        if count > _FILES:
            break
    return found

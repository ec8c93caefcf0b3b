"""The audit: changes and who made them."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response

from protoslice.catalog.audit import EVERY_SPACE, AuditQuery, AuditRow, AuditTable, Place
from protoslice.catalog.syntax import is_id, is_id_prefix
from protoslice.database.transactions import time_of
from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import AuditEntry
from protoslice.server.api.encoding import encode_items
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import Cursor, Limit, Since, Until, microseconds_of, page_answer
from protoslice.server.api.models import PageOf
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.places import space_of
from protoslice.server.auth.rules import ADMIN
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given
from protoslice.stores import ResultPage

router = GuardedRouter(tags=["audit"])

_CURSOR: Final = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{32})-([0-9a-f]{1,15})")


@endpoint(
    router,
    "GET /v1/audit",
    ADMIN,
    answer=PageOf[AuditEntry],
    fails=(401, 403, 404, 422),
    cached=True,
    summary="List changes",
)
async def list_changes(  # noqa: PLR0913 - each is a parameter of the query
    request: Request,
    services: Given,
    cursor: Cursor,
    who: Annotated[str | None, Query(description="Only changes by this token or account.", examples=["ci"])] = None,
    what: Annotated[str | None, Query(description="Only changes of this kind.", examples=["store.removed"])] = None,
    subject: Annotated[
        str | None,
        Query(description="Only changes of this store, by its id or the beginning of it, or of this name."),
    ] = None,
    since: Since = None,
    until: Until = None,
    every_space: Annotated[
        bool,
        Query(description="Changes that concern all spaces, in place of those of one; needs an admin of all spaces."),
    ] = False,
    limit: Limit = 100,
) -> Response:
    """List changes of the space in the URL, newest first, with who made them.

    A page may be short, or empty, although there is a `next`. Changes are kept for `PROTOSLICE_AUDIT_SECONDS`.
    """
    if every_space:
        services.require(Scope.ADMIN, EVERY_SPACE)
    if subject is not None and is_id_prefix(subject) and not is_id(subject):
        with suppress(NotFound):
            subject = await services.stores.manifests.whole_id(subject)
    table = AuditTable(services.stores.database, EVERY_SPACE if every_space else space_of(request.scope))
    query = AuditQuery(who=who, what=what, subject=subject, since=microseconds_of(since), until=microseconds_of(until))
    most = min(limit, services.settings.max_page_items)
    rows, rest = await table.page(query, limit=most, after=None if cursor is None else _place(cursor))
    page = ResultPage(rows, None if rest is None else f"{rest[0]:x}-{rest[1].hex()}-{rest[2]:x}")
    items = await asyncio.to_thread(lambda: encode_items(map(_fact, rows)))
    return page_answer(request, page, items)


def _place(cursor: str) -> Place:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidInput("this cursor was not given by this service")
    return int(match[1], 16), bytes.fromhex(match[2]), int(match[3], 16)


def _fact(row: AuditRow) -> AuditEntry:
    who = row.who
    return AuditEntry(time_of(row.at), who.name, row.what, row.subject, dict(row.detail), row.change.hex(), who.id)

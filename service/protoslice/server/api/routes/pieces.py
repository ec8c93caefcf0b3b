"""Routes about pieces: digests by which uploads and downloads leave out bytes that the other side has."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from protoslice.facts import MissingPieces, Piece
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import Cursor, Limit, json_answer, view_answer
from protoslice.server.api.models import PageOf
from protoslice.server.api.request_bodies import AskMissing
from protoslice.server.api.routes.json_views import lasting_headers
from protoslice.server.auth.places import Ref
from protoslice.server.auth.rules import READ, SHOWN
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given
from protoslice.stores import ResultPage
from protoslice.stores.reading.pieces import table_of

router = GuardedRouter(tags=["chunks"])


@endpoint(
    router,
    "POST /v1/chunks/missing",
    READ,
    answer=MissingPieces,
    fails=(404, 409, 413, 422),
    operation="find_missing_chunks",
    experimental=True,
    summary="Find missing pieces",
)
async def find_missing(request: Request, services: Given, body: AskMissing) -> Response:
    """Report which of the given pieces are missing, and where the others are.

    Searches the given stores, by default those that share the most pieces.
    """
    wanted = {piece.sha256: piece.size for piece in body.chunks}
    found = await services.stores.locate(wanted, body.stores)
    there = {place.sha256 for place in found}
    missing = MissingPieces(tuple(sha256 for sha256 in wanted if sha256 not in there), tuple(found))
    return json_answer(request, missing, headers={"cache-control": "no-store"})


@endpoint(
    router,
    "GET /v1/stores/{ref}/pieces",
    SHOWN,
    answer=PageOf[Piece],
    fails=(404, 409, 422),
    cached=True,
    experimental=True,
    summary="List the pieces of every file, with digests",
)
async def list_pieces(
    request: Request,
    services: Given,
    cursor: Cursor,
    ref: Ref,
    limit: Limit = 1000,
) -> Response:
    """Return a page of pieces (parts of a file of at most 4 MiB) that cover all files in order.

    The first request reads every file.
    """
    store = await services.stores.view(ref)
    most, headers = min(limit, services.settings.max_page_items), lasting_headers(request, store, ref)

    async def made() -> ResultPage[Piece]:
        return (await table_of(store)).page(most, cursor)

    return await view_answer(request, services, store, made, headers)

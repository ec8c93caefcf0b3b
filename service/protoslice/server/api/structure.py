"""Routes that serve the structure of a store as JSON: chunks, fields, signatures, a summary, and pieces."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.responses import Response

from protoslice.facts import (
    ChunkEntry,
    MissingPieces,
    ModelReport,
    Node,
    Piece,
    Signature,
)
from protoslice.server.api.json_answers import (
    Cursor,
    Limit,
    Start,
    json_answer,
    view_answer,
)
from protoslice.server.api.models import PageOf
from protoslice.server.api.parameters import OtherFile, Plan, Viewed
from protoslice.server.api.requests import AskMissing
from protoslice.server.auth.permissions import READ, READ_SIGNED
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.stores import ResultPage
from protoslice.streams.framing import Framing
from protoslice.tensors.listing import tags_of
from protoslice.views import chunks, documents, models
from protoslice.views.pieces import table_of
from protoslice.views.records import RecordsRequest

router = RouteGroup(tags=["views"])


@dataclass(frozen=True, slots=True)
class _Document:
    """The query parameters that select a document, which is the root message or a stream of records."""

    file: OtherFile = None
    framing: Annotated[Framing | None, Query(description="Framing of the stream, if it cannot be detected.")] = None
    type: Annotated[str | None, Query(description="Message type of the stream's records.")] = None


RootPath = Annotated[str, Query(description="Field path; default: the root.", examples=["graph"])]


@endpoint(
    router,
    "GET /v1/stores/{ref}/chunks",
    READ_SIGNED,
    answer=PageOf[ChunkEntry],
    cached=True,
    summary="List chunks",
)
async def list_chunks(
    request: Request,
    services: Services,
    cursor: Cursor,
    store: Viewed,
    limit: Limit = 100,
    digests: Annotated[
        bool, Query(description="Include digests; chunks that were never read are read for this.")
    ] = True,
    plan: Plan = None,
) -> Response:
    """Return a page of chunks in order. For a large store, `digests=false` makes the response faster."""
    return await view_answer(
        request,
        services,
        store,
        lambda: chunks.chunks(store, limit=limit, cursor=cursor, digests=digests, plan=plan),
        chunks.digests_known(store),
    )


@endpoint(
    router,
    "GET /v1/stores/{ref}/tree",
    READ_SIGNED,
    answer=PageOf[Node],
    cached=True,
    summary="List the structure below a path",
)
async def get_tree(  # noqa: PLR0913 - each is a parameter of the query
    request: Request,
    services: Services,
    cursor: Cursor,
    store: Viewed,
    of: Annotated[_Document, Depends()],
    path: RootPath = "",
    depth: Annotated[int, Query(ge=1, le=16, description="Number of levels.")] = 1,
    limit: Limit = 100,
    start: Start = 0,
) -> Response:
    """Return a node's children.

    Each child has field, name, type, count and size, and shows whether it has children too.
    """
    found = await documents.document_of(store, RecordsRequest(**asdict(of)))
    return await view_answer(
        request,
        services,
        store,
        lambda: documents.tree(store, path, depth, limit, cursor or str(start), found),
        *found.facts,
    )


@endpoint(
    router,
    "GET /v1/stores/{ref}/treemap",
    READ_SIGNED,
    answer=Node,
    cached=True,
    experimental=True,
    summary="List the largest parts below a path",
)
async def get_treemap(
    request: Request,
    services: Services,
    store: Viewed,
    path: RootPath = "",
    depth: Annotated[int, Query(ge=1, le=16, description="Number of levels.")] = 4,
    min_share: Annotated[
        float, Query(ge=0, le=1, description="Leave out parts whose share of the bytes at `path` is smaller than this.")
    ] = 0.001,
) -> Response:
    """Return a node with its largest descendants, as a nested tree of at most 1000 nodes.

    In each node, `more` is the number of children that are not shown.
    """
    return await view_answer(request, services, store, lambda: documents.treemap(store, path, depth, min_share))


@endpoint(
    router,
    "GET /v1/stores/{ref}/summary",
    READ_SIGNED,
    answer=ModelReport,
    cached=True,
    summary="Summarize the model",
)
async def get_summary(request: Request, services: Services, store: Viewed) -> Response:
    """Return how many tensors, elements and bytes each data type has, and list missing files and duplicate names."""
    return await view_answer(request, services, store, lambda: models.summary(store))


@endpoint(
    router,
    "GET /v1/stores/{ref}/signatures",
    READ_SIGNED,
    answer=PageOf[Signature],
    fails=(413,),
    cached=True,
    experimental=True,
    summary="List inputs and outputs of a model",
)
async def list_signatures(
    request: Request,
    services: Services,
    cursor: Cursor,
    store: Viewed,
    tags: Annotated[
        str | None, Query(description="Only the meta graph with exactly these tags.", examples=["serve,gpu"])
    ] = None,
    limit: Limit = 100,
) -> Response:
    """Return the signature of an ONNX graph, or the signatures of a SavedModel, grouped by meta graph."""
    wanted = tags_of(tags)
    return await view_answer(request, services, store, lambda: models.signatures(store, wanted, limit, cursor))


pieces = RouteGroup(tags=["chunks"])


@endpoint(
    pieces,
    "POST /v1/chunks/missing",
    READ,
    answer=MissingPieces,
    fails=(409,),
    operation="find_missing_chunks",
    experimental=True,
    summary="Find missing pieces",
)
async def find_missing(request: Request, services: Services, body: AskMissing) -> Response:
    """Report which pieces in the request are missing, and where the other pieces are stored.

    The service searches the `stores` in the request. By default, it first searches the stores on which uploads with
    these `tags` would be based. It then searches the stores that share the most pieces.
    """
    wanted = {piece.sha256: piece.size for piece in body.chunks}
    bases = await services.stores.bases(body.tags) if body.stores is None else ()
    found = await services.stores.locate(wanted, body.stores, bases)
    there = {place.sha256 for place in found}
    missing = MissingPieces(tuple(sha256 for sha256 in wanted if sha256 not in there), tuple(found), bases)
    return json_answer(request, missing, headers={"cache-control": "no-store"})


@endpoint(
    pieces,
    "GET /v1/stores/{ref}/pieces",
    READ_SIGNED,
    answer=PageOf[Piece],
    fails=(409,),
    cached=True,
    experimental=True,
    summary="List the pieces of every file, with digests",
)
async def list_pieces(
    request: Request,
    services: Services,
    cursor: Cursor,
    store: Viewed,
    limit: Limit = 1000,
) -> Response:
    """Return a page of pieces that cover all files in order. A piece is a part of a file, at most 4 MiB long.

    The first request reads every file.
    """

    async def made() -> ResultPage[Piece]:
        return (await table_of(store)).page(limit, cursor)

    return await view_answer(request, services, store, made)

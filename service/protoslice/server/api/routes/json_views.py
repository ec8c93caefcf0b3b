"""The views that are JSON: the chunk table, the tree, tensors and signatures."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.responses import Response

from protoslice.facts import (
    ChunkEntry,
    GraphLevel,
    GraphSection,
    ModelReport,
    Neighbourhood,
    Node,
    Signature,
    TensorBranch,
)
from protoslice.graphs import MAX_HOPS, MAX_NODES, Ends, GraphQuery
from protoslice.server.api.endpoints import endpoint
from protoslice.server.api.json_answers import VERSIONED, Cursor, Limit, bound, page_text, view_answer
from protoslice.server.api.models import PageOf, TensorPage
from protoslice.server.api.view_parameters import FILE_HELP, PLAN_HELP, STRICT_HELP, Tags
from protoslice.server.auth.places import Ref, absolute_url, lasting_url
from protoslice.server.auth.rules import SHOWN
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given, Services
from protoslice.stores import OpenStore, RecordsRequest, TextView
from protoslice.stores.paging import PAGE_BYTES
from protoslice.stores.reading import chunks, documents, graphs, models, tensors
from protoslice.stores.reading.tensors import tree as tensor_tree
from protoslice.streams.framing import Framing
from protoslice.tensors.listing import tags_of

router = GuardedRouter(tags=["views"])

MOST_BLOCKS = (1 << 32) - 1
"""Largest number of a block, and of nodes."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Parameters that choose tensors, and their order."""

    name: Annotated[str | None, Query(description="Name or address; `*` matches anything.", examples=["encoder.*"])] = (
        None
    )
    dtype: Annotated[str | None, Query(description="Data type.", examples=["F32"])] = None
    search: Annotated[
        str | None,
        Query(
            description="Words that the name must contain, in any case.",
            examples=["layer.3 bias"],
        ),
    ] = None
    regex: Annotated[
        str | None,
        Query(
            description="Regular expression that must match somewhere in the name; back references and look-around are "
            "not supported.",
            examples=[r"layer\.(3|11)\..*bias$"],
        ),
    ] = None
    prefix: Annotated[str | None, Query(description="Beginning of the name.", examples=["encoder.layer.3."])] = None
    sort: Annotated[
        str | None,
        Query(description="`name`, `dtype`, `shape` or `size`; with `-` in front, descending.", examples=["-size"]),
    ] = None


@dataclass(frozen=True, slots=True)
class _Document:
    """Parameters that choose the document to look into."""

    file: Annotated[str | None, Query(description=FILE_HELP, examples=["variables/variables.index"])] = None
    framing: Annotated[Framing | None, Query(description="Framing of the stream, if it cannot be detected.")] = None
    type: Annotated[str | None, Query(description="Message type of the stream's records.")] = None


Start = Annotated[int, Query(alias="from", ge=0, lt=10**18, description="Position to start at, instead of a cursor.")]
RootPath = Annotated[str, Query(description="Field path; default: the root.", examples=["graph"])]


@endpoint(
    router,
    "GET /v1/stores/{ref}/chunks",
    SHOWN,
    answer=PageOf[ChunkEntry],
    fails=(404, 422),
    cached=True,
    summary="List chunks",
)
async def list_chunks(
    request: Request,
    services: Given,
    cursor: Cursor,
    ref: Ref,
    limit: Limit = 100,
    digests: Annotated[
        bool, Query(description="Include digests; chunks that were never read are read for this.")
    ] = True,
    plan: Annotated[str | None, Query(description=PLAN_HELP, examples=["policy"])] = None,
) -> Response:
    """Return a page of chunks, in order. For a large store, `digests=false` makes the response faster."""
    store = await services.stores.view(ref)
    most, headers = _at_most(limit, services), lasting_headers(request, store, ref)
    return await view_answer(
        request,
        services,
        store,
        lambda: chunks.chunks(store, limit=most, cursor=cursor, digests=digests, plan=plan),
        headers,
        chunks.digests_known(store),
    )


@endpoint(
    router,
    "GET /v1/stores/{ref}/tree",
    SHOWN,
    answer=PageOf[Node],
    fails=(404, 422),
    cached=True,
    summary="List the structure below a path",
)
async def get_tree(  # noqa: PLR0913 - each is a parameter of the query
    request: Request,
    services: Given,
    cursor: Cursor,
    ref: Ref,
    of: Annotated[_Document, Depends()],
    path: RootPath = "",
    depth: Annotated[int, Query(ge=1, le=16, description="Number of levels.")] = 1,
    limit: Limit = 100,
    start: Start = 0,
) -> Response:
    """Return the children of a node with field, name, type, count and size, and whether they have children."""
    store = await services.stores.view(ref)
    most, headers = _at_most(limit, services), lasting_headers(request, store, ref)
    found = await documents.document_of(store, RecordsRequest(**asdict(of)))
    return await view_answer(
        request,
        services,
        store,
        lambda: documents.tree(store, path, depth, most, cursor or str(start), found),
        headers,
        *found.facts,
    )


@endpoint(
    router,
    "GET /v1/stores/{ref}/treemap",
    SHOWN,
    answer=Node,
    fails=(404, 422),
    cached=True,
    experimental=True,
    summary="List the largest parts below a path",
)
async def get_treemap(
    request: Request,
    services: Given,
    ref: Ref,
    path: RootPath = "",
    depth: Annotated[int, Query(ge=1, le=16, description="How many levels.")] = 4,
    min_share: Annotated[
        float, Query(ge=0, le=1, description="Leave out parts whose share of the bytes at `path` is smaller than this.")
    ] = 0.001,
) -> Response:
    """Return a node with its largest children, nested: at most 1000 nodes.

    `more` is a node's number of children that are not shown.
    """
    store = await services.stores.view(ref)
    headers = lasting_headers(request, store, ref)
    return await view_answer(
        request, services, store, lambda: documents.treemap(store, path, depth, min_share), headers
    )


@endpoint(
    router,
    "GET /v1/stores/{ref}/summary",
    SHOWN,
    answer=ModelReport,
    fails=(404,),
    cached=True,
    summary="Summarize the model",
)
async def get_summary(request: Request, services: Given, ref: Ref) -> Response:
    """Return tensors, elements and bytes by data type, missing files, and duplicate names."""
    store = await services.stores.view(ref)
    return await view_answer(
        request, services, store, lambda: models.summary(store), lasting_headers(request, store, ref)
    )


@endpoint(
    router,
    "GET /v1/stores/{ref}/tensors",
    SHOWN,
    answer=TensorPage,
    fails=(404, 422),
    cached=True,
    summary="List tensors",
)
async def list_tensors(
    request: Request,
    services: Given,
    cursor: Cursor,
    ref: Ref,
    chosen: Annotated[_Chosen, Depends()],
    tags: Tags = None,
    limit: Limit = 100,
    start: Start = 0,
) -> Response:
    """Return a page of tensors, in the model's order or sorted: name, address, type, shape, size and file.

    A page may be empty and still have a next one, because each page only searches a limited number of names.
    """
    store = await services.stores.view(ref)
    wanted, most = tags_of(tags), _at_most(limit, services)

    async def made() -> TextView:
        page = await tensors.page(store, **asdict(chosen), limit=most, cursor=cursor or str(start), tags=wanted)
        page, total = replace(page, next=bound(request, page.next)), len(await tensors.listed(store, wanted))
        return await services.stores.worker.sized(
            PAGE_BYTES, lambda: TextView.of(page_text(page, total=total), next=page.next)
        )

    return await view_answer(request, services, store, made, lasting_headers(request, store, ref))


@endpoint(
    router,
    "GET /v1/stores/{ref}/tensortree",
    SHOWN,
    answer=TensorBranch,
    fails=(404, 422),
    cached=True,
    experimental=True,
    summary="List tensors as a tree of names",
)
async def get_tensor_tree(
    request: Request,
    services: Given,
    ref: Ref,
    prefix: Annotated[
        str, Query(description="Only tensors whose names begin with this; default: all.", examples=["encoder.layer."])
    ] = "",
    start: Annotated[int, Query(ge=0, description="Only tensors from this place on, by name: `start` of a node.")] = 0,
    tensors: Annotated[
        int | None, Query(ge=1, description="Only so many tensors from `start` on: `tensors` of a node; default: all.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=4000, description="Maximum number of nodes, about.")] = 1000,
) -> Response:
    """Return tensors as a tree of names with sizes, the largest nodes opened first.

    Nodes are in natural order. Of a node with more than 256 groups, small neighbours are one node: a range.
    """
    store = await services.stores.view(ref)
    end, headers = start + tensors if tensors else sys.maxsize, lasting_headers(request, store, ref)
    return await view_answer(request, services, store, lambda: tensor_tree(store, prefix, start, end, limit), headers)


@endpoint(
    router,
    "GET /v1/stores/{ref}/signatures",
    SHOWN,
    answer=PageOf[Signature],
    fails=(404, 413, 422),
    cached=True,
    experimental=True,
    summary="List inputs and outputs of a model",
)
async def list_signatures(
    request: Request,
    services: Given,
    cursor: Cursor,
    ref: Ref,
    tags: Annotated[
        str | None, Query(description="Only the meta graph with exactly these tags.", examples=["serve,gpu"])
    ] = None,
    limit: Limit = 100,
) -> Response:
    """Return the signatures of a SavedModel, by meta graph, or the inputs and outputs of an ONNX graph as one."""
    store = await services.stores.view(ref)
    wanted, most, headers = tags_of(tags), _at_most(limit, services), lasting_headers(request, store, ref)
    return await view_answer(request, services, store, lambda: models.signatures(store, wanted, most, cursor), headers)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Parameters that choose a part of a graph."""

    around: Annotated[
        str | None,
        Query(
            description="Path or name of a node, or of a value it consumes or produces, to return the nodes around it. "
            "Default: the graph's first nodes."
        ),
    ] = None
    graph: Annotated[
        str | None, Query(description="Path of the graph; default: the main graph.", examples=["graph"])
    ] = None
    hops: Annotated[int, Query(ge=0, le=MAX_HOPS, description="Maximum number of links from the node in `around`.")] = 2
    search: Annotated[
        str | None,
        Query(
            description="Without `around`: return the nodes whose name or path contains these words. If there are "
            "none, return those that produce a value whose name contains them."
        ),
    ] = None
    limit: Annotated[int, Query(ge=1, le=MAX_NODES, description="Maximum number of nodes.")] = 100


@endpoint(
    router,
    "GET /v1/stores/{ref}/graph",
    SHOWN,
    answer=Neighbourhood,
    fails=(404, 413, 422),
    cached=True,
    experimental=True,
    summary="List the nodes around a node of a graph",
)
async def get_graph(request: Request, services: Given, ref: Ref, asked: Annotated[_Asked, Depends()]) -> Response:
    """Return the nodes around a node, nearest first, with the values between them.

    Without `around`, return the graph's first nodes, or those that match `search`.
    """
    store = await services.stores.view(ref)
    query, headers = GraphQuery(**asdict(asked)), lasting_headers(request, store, ref)
    return await view_answer(request, services, store, lambda: graphs.part(store, query), headers)


GraphPath = Annotated[
    str | None,
    Query(description="Path of the graph; default: that of the node, or the main graph.", examples=["graph"]),
]


@endpoint(
    router,
    "GET /v1/stores/{ref}/graph/blocks",
    SHOWN,
    answer=GraphLevel,
    fails=(404, 413, 422),
    cached=True,
    experimental=True,
    summary="List a graph as blocks",
)
async def get_graph_blocks(
    request: Request,
    services: Given,
    ref: Ref,
    graph: GraphPath = None,
    block: Annotated[int, Query(ge=0, le=MOST_BLOCKS, description="Number of a block; 0 is the whole graph.")] = 0,
    node: Annotated[
        str | None, Query(description="Path or name of a node, to list the block around it instead of `block`.")
    ] = None,
) -> Response:
    """Return the parts of a block in the order in which they are computed, and the values between them.

    Blocks are groups of nodes whose names begin alike, and repeats: stretches that look the same. A level has at most
    64 parts.
    """
    store = await services.stores.view(ref)
    headers = lasting_headers(request, store, ref)
    return await view_answer(request, services, store, lambda: graphs.level(store, graph, block, node), headers)


@dataclass(frozen=True, slots=True)
class _Places:
    """Parameters that choose two places in a graph."""

    start: Annotated[str, Query(description="Path or name of a node.", examples=["conv1"])]
    end: Annotated[str, Query(description="Path or name of another node.", examples=["softmax"])]
    start_nodes: Annotated[
        int, Query(ge=1, le=MOST_BLOCKS, description="Number of nodes from `start` on, such as those of a block.")
    ] = 1
    end_nodes: Annotated[int, Query(ge=1, le=MOST_BLOCKS, description="Number of nodes from `end` on.")] = 1


@endpoint(
    router,
    "GET /v1/stores/{ref}/graph/between",
    SHOWN,
    answer=GraphSection,
    fails=(404, 413, 422),
    cached=True,
    experimental=True,
    summary="List the nodes between two places of a graph",
)
async def get_graph_section(
    request: Request, services: Given, ref: Ref, places: Annotated[_Places, Depends()], graph: GraphPath = None
) -> Response:
    """Return the nodes on all ways from one place to the other, their weights, and the values that go in and out.

    Of an ONNX model, `inputs` and `outputs` select the same part in `/onnx/model.onnx`.
    """
    store = await services.stores.view(ref)
    ends, headers = Ends(**asdict(places)), lasting_headers(request, store, ref)
    return await view_answer(request, services, store, lambda: graphs.section(store, graph, ends), headers)


@endpoint(
    router,
    "GET /v1/stores/{ref}/references.json",
    SHOWN,
    fails=(404, 413, 422),
    cached=True,
    experimental=True,
    summary="Get references to the tensors",
)
async def get_references(
    request: Request, services: Given, ref: Ref, strict: Annotated[bool, Query(description=STRICT_HELP)] = False
) -> Response:
    """Return kerchunk references for fsspec and zarr: each tensor is an array of byte ranges on this service."""
    store = await services.stores.view(ref)
    base = absolute_url(request.scope, f"/v1/stores/{store.info.id}")

    async def made() -> TextView:
        body, omitted = await tensors.references(store, base)
        return await services.stores.worker.run(lambda: TextView.of(body, omitted=omitted))

    return await view_answer(request, services, store, made, {}, base, strict=strict)


def _at_most(limit: int, services: Services) -> int:
    return min(limit, services.settings.max_page_items)


def lasting_headers(request: Request, store: OpenStore, ref: str) -> dict[str, str]:
    """Cache-Control under a store's id, Content-Location (the lasting URL) under another name."""
    if ref == store.info.id:
        return {"cache-control": VERSIONED}
    return {"content-location": lasting_url(request.scope, store.info.id)}

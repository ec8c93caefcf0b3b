"""Routes that serve parts of a model's graph as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.responses import Response

from protoslice.facts import (
    GraphLevel,
    GraphSection,
    Neighbourhood,
)
from protoslice.graphs import MAX_HOPS, MAX_NODES, Ends, GraphQuery
from protoslice.server.api.json_answers import (
    view_answer,
)
from protoslice.server.api.parameters import Viewed
from protoslice.server.auth.permissions import READ_SIGNED
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.views import models

router = RouteGroup(tags=["views"])

MOST_BLOCKS = (1 << 32) - 1
"""The limit on a block's number, and on a number of nodes, in a query."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The query parameters that select a part of a graph."""

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
    READ_SIGNED,
    answer=Neighbourhood,
    fails=(413,),
    cached=True,
    experimental=True,
    summary="List the nodes around a node of a graph",
)
async def get_graph(
    request: Request, services: Services, store: Viewed, asked: Annotated[_Asked, Depends()]
) -> Response:
    """Return the nodes around a node, nearest first, with the values that pass between these nodes.

    Without `around`, return the graph's first nodes, or the nodes that match `search`.
    """
    query = GraphQuery(**asdict(asked))
    return await view_answer(request, services, store, lambda: models.graph_part(store, query))


GraphPath = Annotated[
    str | None,
    Query(description="Path of the graph; default: that of the node, or the main graph.", examples=["graph"]),
]


@endpoint(
    router,
    "GET /v1/stores/{ref}/graph/blocks",
    READ_SIGNED,
    answer=GraphLevel,
    fails=(413,),
    cached=True,
    experimental=True,
    summary="List a graph as blocks",
)
async def get_graph_blocks(
    request: Request,
    services: Services,
    store: Viewed,
    graph: GraphPath = None,
    block: Annotated[int, Query(ge=0, le=MOST_BLOCKS, description="Number of a block; 0 is the whole graph.")] = 0,
    node: Annotated[
        str | None, Query(description="Path or name of a node, to list the block around it instead of `block`.")
    ] = None,
) -> Response:
    """Return a block's parts in the order of computation, and the values that pass between these parts.

    A block is a group of nodes whose names begin alike, or one of several sequences of nodes that look the same. A
    response has at most 64 parts.
    """
    return await view_answer(request, services, store, lambda: models.graph_level(store, graph, block, node))


@dataclass(frozen=True, slots=True)
class _Places:
    """The query parameters that select two places in a graph."""

    start: Annotated[str, Query(description="Path or name of a node.", examples=["conv1"])]
    end: Annotated[str, Query(description="Path or name of another node.", examples=["softmax"])]
    start_nodes: Annotated[
        int, Query(ge=1, le=MOST_BLOCKS, description="Number of nodes from `start` on, such as those of a block.")
    ] = 1
    end_nodes: Annotated[int, Query(ge=1, le=MOST_BLOCKS, description="Number of nodes from `end` on.")] = 1


@endpoint(
    router,
    "GET /v1/stores/{ref}/graph/between",
    READ_SIGNED,
    answer=GraphSection,
    fails=(413,),
    cached=True,
    experimental=True,
    summary="List the nodes between two places of a graph",
)
async def get_graph_section(
    request: Request, services: Services, store: Viewed, places: Annotated[_Places, Depends()], graph: GraphPath = None
) -> Response:
    """Return the nodes on all paths between two places, their weights, and the values that enter and leave this part.

    For an ONNX model, `inputs` and `outputs` of the response select the same nodes in `/onnx/model.onnx`.
    """
    ends = Ends(**asdict(places))
    return await view_answer(request, services, store, lambda: models.graph_section(store, graph, ends))

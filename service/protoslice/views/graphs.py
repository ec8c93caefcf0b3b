"""Graphs of a store's model: nodes are found and linked once, then looked at a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protoslice.errors import LimitExceeded, NotFound, Unsupported
from protoslice.facts import GraphLevel, GraphSection, Neighbourhood
from protoslice.graphs import Ends, GraphOutline, GraphQuery, Graphs, Weight, subgraph
from protoslice.serving.opened import OpenStore
from protoslice.views import tensors

_MOST_WEIGHTS: Final = 200_000
"""Strips of a model with more tensors have no weights."""


async def part(opened: OpenStore, query: GraphQuery) -> Neighbourhood:
    """Return the part of a graph that is asked for.

    `Unsupported` for a model without graphs, `NotFound` for a graph or a node that it does not have.
    """
    query.check()
    graphs, is_tensor = await _graphs(opened), await _is_tensor(opened)
    return await opened.worker.bulk(lambda: subgraph(graphs, query, is_tensor))


async def level(opened: OpenStore, graph: str | None, block: int, node: str | None) -> GraphLevel:
    """Return the parts of a block of a graph, or with `node` of that around a node; see `part` for errors."""
    outline = await _outline(opened, graph, node)
    return await opened.worker.bulk(lambda: outline.level(block, node))


async def section(opened: OpenStore, graph: str | None, ends: Ends) -> GraphSection:
    """Return the nodes on all ways between two places of a graph; see `part` for errors."""
    outline = await _outline(opened, graph, ends.start)
    return await opened.worker.bulk(lambda: outline.section(ends))


async def _graphs(opened: OpenStore) -> Graphs:
    async def made() -> tuple[Graphs, int]:
        graphs = await opened.worker.bulk(lambda: Graphs(opened.model))
        return graphs, graphs.weight

    # To find a million nodes takes half a gigabyte: several at once, asked for by anybody, would be the end.
    return await opened.results.get((opened.row, "graphs"), made, alone=True)


async def _outline(opened: OpenStore, path: str | None, node: str | None) -> GraphOutline:
    graphs = await _graphs(opened)
    graph = graphs.number(path if path is not None or node is None else graphs.holder(node))

    async def made() -> tuple[GraphOutline, int]:
        weights = await _weights(opened)
        outline = await opened.worker.bulk(lambda: GraphOutline(graphs, graph, weights))
        return outline, outline.weight

    return await opened.results.get((opened.row, "outline of a graph", graph), made, alone=True)


async def _weights(opened: OpenStore) -> Sequence[Weight]:
    try:
        return await tensors.weights(opened, _MOST_WEIGHTS)
    except (Unsupported, NotFound, LimitExceeded):
        return ()


async def _is_tensor(opened: OpenStore) -> Callable[[str], bool]:
    """Return a test for names of tensors; graphs can be all the same where tensors cannot be listed."""
    try:
        found = await tensors.listed(opened)
    except (Unsupported, NotFound, LimitExceeded):
        return lambda name: False
    return lambda name: bool(found.numbers(name))

"""Graphs of a store's model: nodes are found and linked once, then looked at a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.errors import LimitExceeded, NotFound, Unsupported
from protoslice.facts import GraphLevel, GraphSection, Neighbourhood
from protoslice.graphs import Ends, GraphOutline, GraphQuery, Graphs, Weight, subgraph
from protoslice.stores.reading.tensors.tensors import StoreTensors
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model

_MOST_WEIGHTS: Final = 200_000
"""Strips of a model with more tensors have no weights."""


class StoreGraphs:
    """Graphs of one store."""

    def __init__(self, model: Model, row: int, tensors: StoreTensors, results: Results, worker: Worker) -> None:
        self._model = model
        self._row = row
        self._tensors = tensors
        self._results = results
        self._worker = worker

    async def part(self, query: GraphQuery) -> Neighbourhood:
        """The part of a graph that is asked for.

        `Unsupported` for a model without graphs, `NotFound` for a graph or a node that it does not have.
        """
        query.check()
        graphs, is_tensor = await self._graphs(), await self._is_tensor()
        return await self._worker.bulk(lambda: subgraph(graphs, query, is_tensor))

    async def level(self, graph: str | None, block: int, node: str | None) -> GraphLevel:
        """The parts of a block of a graph, or with `node` of that around a node; see `part` for errors."""
        outline = await self._outline(graph, node)
        return await self._worker.bulk(lambda: outline.level(block, node))

    async def section(self, graph: str | None, ends: Ends) -> GraphSection:
        """The nodes on all ways between two places of a graph; see `part` for errors."""
        outline = await self._outline(graph, ends.start)
        return await self._worker.bulk(lambda: outline.section(ends))

    async def _outline(self, path: str | None, node: str | None) -> GraphOutline:
        graphs = await self._graphs()
        graph = graphs.number(path if path is not None or node is None else graphs.holder(node))

        async def made() -> tuple[GraphOutline, int]:
            weights = await self._weights()
            outline = await self._worker.bulk(lambda: GraphOutline(graphs, graph, weights))
            return outline, outline.weight

        return await self._results.get((self._row, "outline of a graph", graph), made, alone=True)

    async def _weights(self) -> Sequence[Weight]:
        try:
            return await self._tensors.weights(_MOST_WEIGHTS)
        except (Unsupported, NotFound, LimitExceeded):
            return ()

    async def _is_tensor(self) -> Callable[[str], bool]:
        tensors = await self._named()
        return (lambda name: bool(tensors.numbers(name))) if tensors is not None else (lambda name: False)

    async def _graphs(self) -> Graphs:
        async def made() -> tuple[Graphs, int]:
            graphs = await self._worker.bulk(lambda: Graphs(self._model))
            return graphs, graphs.weight

        # To find a million nodes takes half a gigabyte: several at once, asked for by anybody, would be the end.
        return await self._results.get((self._row, "graphs"), made, alone=True)

    async def _named(self) -> Tensors | None:
        """The tensors of the store; None when they cannot be listed, since its graphs can be all the same."""
        try:
            return await self._tensors.all()
        except (Unsupported, NotFound, LimitExceeded):
            return None

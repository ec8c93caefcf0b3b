"""Graphs of a store's model: nodes are found and linked once, then looked at a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import CachedFlight
from protoslice.errors import LimitExceeded, NotFound, Unsupported
from protoslice.facts import Neighbourhood
from protoslice.formats.model import Model, Tensors
from protoslice.graphs import Graphs, Question, neighbourhood
from protoslice.stores.reading.tensors.tensors import StoreTensors

_MOST: Final = 8
_ROOM: Final = 320 << 20
"""Bytes of memory for graphs of all stores: one of a million nodes has room."""


class CachedGraphs:
    """Graphs of recent stores, by their rows; those of one store are found at a time."""

    def __init__(self) -> None:
        self._flight: CachedFlight[int, Graphs] = CachedFlight(most=_MOST, room=_ROOM)
        # To find a million nodes takes half a gigabyte: several at once, asked for by anybody, would be the end.
        self._turn = asyncio.Lock()

    async def get(self, row: int, make: Callable[[], Coroutine[Any, Any, tuple[Graphs, int]]]) -> Graphs:
        """Cached graphs of a row, or else those that `make` gives with their size in bytes."""
        return await self._flight.get(row, lambda: self._made(make))

    async def _made(self, make: Callable[[], Coroutine[Any, Any, tuple[Graphs, int]]]) -> tuple[Graphs, int]:
        async with self._turn:
            return await make()


class StoreGraphs:
    """Graphs of one store."""

    def __init__(self, model: Model, row: int, tensors: StoreTensors, cached: CachedGraphs, worker: Worker) -> None:
        self._model = model
        self._row = row
        self._tensors = tensors
        self._cached = cached
        self._worker = worker

    async def part(self, question: Question) -> Neighbourhood:
        """The part of a graph that is asked for.

        `Unsupported` for a model without graphs, `NotFound` for a graph or a node that it does not have.
        """
        question.check()
        graphs = await self._cached.get(self._row, self._found)
        tensors = await self._named()
        is_tensor = (lambda name: bool(tensors.numbers(name))) if tensors is not None else (lambda name: False)
        return await self._worker.bulk(lambda: neighbourhood(graphs, question, is_tensor))

    async def _found(self) -> tuple[Graphs, int]:
        """The graphs, and their weight in bytes."""
        graphs = await self._worker.bulk(lambda: Graphs(self._model))
        return graphs, graphs.weight

    async def _named(self) -> Tensors | None:
        """The tensors of the store; None when they cannot be listed, since its graphs can be all the same."""
        try:
            return await self._tensors.all()
        except (Unsupported, NotFound, LimitExceeded):
            return None

"""Computed sources, served like stored objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from protoslice import _core
from protoslice.concurrency.executor import Worker, counted_work
from protoslice.sources.source import RangeSource
from protoslice.storage import Span
from protoslice.storage.interface import PIECE


class Readable(Protocol):
    """Source of a representation's bytes, read as a `RangeSource` in threads, in spans on the event loop."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    @property
    def is_near(self) -> bool:
        """True when a read takes no round trip."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`. Blocks."""

    def covering(self, span: Span) -> Span:
        """The span to fetch for `span`, such as the whole blocks around it."""

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The bytes of `spans`, each as returned by `covering`."""

    def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """The bytes from `start` to `end`, in pieces of about a mebibyte, as they come."""

    def read_cached(self, offset: int, length: int) -> memoryview | None:
        """The bytes, when they are available without waiting; else None."""


class Computed:
    """Source that computes its bytes from other sources on each read."""

    is_near = False
    """Reads run in a worker thread."""

    def __init__(self, source: RangeSource, worker: Worker, spend: Callable[[float], None] | None = None) -> None:
        """`spend` is called with the seconds of processor time of each read, and may raise an error."""
        self.size = source.size
        self.stored = source.stored if isinstance(source, _core.Computed) else source.size
        """Stored bytes that these are computed from."""
        self._source = source
        self._worker = worker
        self._spend = spend

    def counted(self, spend: Callable[[float], None]) -> Computed:
        """Return the same source, whose reads also call `spend`."""
        return Computed(self._source, self._worker, spend)

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`. Blocks."""
        return self._source.read(offset, length)

    def covering(self, span: Span) -> Span:
        """`span`, unchanged."""
        return span

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The bytes of `spans`, computed in a worker thread."""
        with counted_work() as spent:
            found = await self._worker.run(lambda: [self._source.read(start, end - start) for start, end in spans])
        if self._spend is not None:
            self._spend(spent.seconds)
        return found

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """The bytes from `start` to `end`, each piece computed when the one before has been taken."""
        for at in range(start, end, PIECE):
            yield (await self.fetch([(at, min(at + PIECE, end))]))[0]

    def read_cached(self, offset: int, length: int) -> None:
        """Always None: computing takes a worker thread."""
        return None

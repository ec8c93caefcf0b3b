"""Bytes that are computed from stored ones, served like stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protoslice.concurrency.executor import Worker
from protoslice.sources import RangeSource
from protoslice.storage import Span

__all__ = ["Computed", "Readable"]


class Readable(Protocol):
    """What the ropes of a representation are over: read by worker threads as a `RangeSource`, by the loop in spans."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    @property
    def is_near(self) -> bool:
        """Whether a read costs next to nothing."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`. Blocks."""

    def covering(self, span: Span) -> Span:
        """What has to be fetched for `span`."""

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The bytes of `spans`, which `covering` gave."""

    def at_hand(self, offset: int, length: int) -> memoryview | None:
        """The bytes, if they can be had without waiting."""


class Computed:
    """A source whose bytes are made, when they are read, out of what it is over."""

    is_near = False
    """Each read is a call to a thread."""

    def __init__(self, source: RangeSource, worker: Worker) -> None:
        self.size = source.size
        self._source = source
        self._worker = worker

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`. Blocks."""
        return self._source.read(offset, length)

    def covering(self, span: Span) -> Span:
        """The span itself."""
        return span

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The bytes of `spans`, made in a thread."""
        return await self._worker.run(lambda: [self._source.read(start, end - start) for start, end in spans])

    def at_hand(self, offset: int, length: int) -> None:
        """Never: making them takes its time."""
        return None

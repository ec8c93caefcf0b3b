"""Transfers side by side whose bytes come out in order, as they arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from queue import SimpleQueue

from protoslice.client.pool import DaemonPool

__all__ = ["Transfer", "in_order"]

Transfer = Callable[[threading.Event], Iterator[bytes]]
"""Gives pieces of bytes, in a thread of its own; is to end soon once the event is set."""


def in_order(transfers: Iterable[Transfer], parallel: int) -> Generator[bytes, None, None]:
    """The pieces of all transfers, one transfer after the other.

    At most twice as many as run at a time are begun and not yet taken: what those bring is what waits in memory. When
    one fails, or nobody wants the rest, the others are stopped.
    """
    waiting: deque[_Flow] = deque()
    stop = threading.Event()
    with DaemonPool(parallel, "protoslice-transfer") as crew:
        try:
            for transfer in transfers:
                flow = _Flow()
                crew.submit(partial(flow.fill, transfer, stop))
                waiting.append(flow)
                if len(waiting) >= 2 * parallel:
                    yield from waiting.popleft()
            while waiting:
                yield from waiting.popleft()
        finally:
            stop.set()


class _Flow:
    """The pieces of one transfer on their way from its thread."""

    def __init__(self) -> None:
        self._pieces: SimpleQueue[bytes | BaseException | None] = SimpleQueue()

    def fill(self, transfer: Transfer, stop: threading.Event) -> None:
        try:
            for piece in transfer(stop):
                self._pieces.put(piece)
            self._pieces.put(None)
        except BaseException as error:  # whoever takes the pieces is to know
            self._pieces.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

"""Concurrent transfers whose bytes come out in order, as they arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from queue import SimpleQueue

from protoslice.client.threads import DaemonPool

Transfer = Callable[[threading.Event], Iterator[bytes]]
"""Yields pieces of bytes in a thread of the pool; must end soon after the event is set."""


def in_order(transfers: Iterable[Transfer], parallel: int) -> Generator[bytes, None, None]:
    """Pieces of all transfers, one transfer after the other.

    At most `2 * parallel` transfers are started and not yet consumed, which bounds the memory. When one fails, or the
    caller closes the generator, the others are stopped.
    """
    waiting: deque[_PieceQueue] = deque()
    stop = threading.Event()
    with DaemonPool(parallel, "protoslice-transfer") as pool:
        try:
            for transfer in transfers:
                queue = _PieceQueue()
                pool.submit(partial(queue.fill, transfer, stop))
                waiting.append(queue)
                if len(waiting) >= 2 * parallel:
                    yield from waiting.popleft()
            while waiting:
                yield from waiting.popleft()
        finally:
            stop.set()


class _PieceQueue:
    """Queue of the pieces of one transfer, from its thread to the consumer."""

    def __init__(self) -> None:
        self._pieces: SimpleQueue[bytes | BaseException | None] = SimpleQueue()

    def fill(self, transfer: Transfer, stop: threading.Event) -> None:
        try:
            for piece in transfer(stop):
                self._pieces.put(piece)
            self._pieces.put(None)
        except BaseException as error:  # raised again in the consumer
            self._pieces.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                try:
                    raise piece
                finally:
                    del piece  # no cycle of the error and this frame
            yield piece

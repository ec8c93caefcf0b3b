"""Pre-emptive lock of uploads: a new request ends the one before, which may hang on a dead connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protoslice.stores.uploads.faults import Superseded

__all__ = ["Turn", "UploadLocks"]


class Turn:
    """Turn of one request on one upload."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._task = asyncio.current_task()
        self._ended = False
        self._reading = False

    def end(self) -> None:
        """Ask the turn to end: at once while it waits for its client, else before it reads the next piece."""
        if not self._ended and self._reading and self._task is not None:
            self._task.cancel()
        self._ended = True

    def _was_ended(self) -> bool:
        """True when only the next turn cancelled this task, and no shutdown did as well."""
        return self._ended and self._task is not None and self._task.uncancel() == 0

    async def pieces(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of `body`; `Superseded` once the turn is asked to end."""
        while True:
            if self._ended:
                raise Superseded
            self._reading = True
            try:
                piece = await anext(body, None)
            except asyncio.CancelledError:
                if self._was_ended():
                    raise Superseded from None
                raise
            finally:
                self._reading = False
            if piece is None:
                return
            yield piece


class UploadLocks:
    """Locks of all uploads within this process; between processes, compare-and-set of the records decides."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    @asynccontextmanager
    async def take(self, upload_id: str) -> AsyncIterator[Turn]:
        """Acquire an upload: ends the turn before and waits until that has cleaned up."""
        while (before := self._turns.get(upload_id)) is not None:
            before.end()
            await before.over.wait()
        turn = self._turns[upload_id] = Turn()
        try:
            yield turn
        finally:
            del self._turns[upload_id]
            turn.over.set()

"""Pre-emptive lock of uploads: a new request ends the one before, which may hang on a dead connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protoslice.uploads.body import Superseded


class LockHolder:
    """Request that holds the lock of one upload."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self._task = asyncio.current_task()
        self._preempted = False
        self._reading = False

    def preempt(self) -> None:
        """Ask for the lock: at once while the holder waits for its client, else before its next piece."""
        if not self._preempted and self._reading and self._task is not None:
            self._task.cancel()
        self._preempted = True

    def _was_preempted(self) -> bool:
        """True when only the next holder cancelled this task, and no shutdown did as well."""
        return self._preempted and self._task is not None and self._task.uncancel() == 0

    async def pieces(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of `body`; `Superseded` once the holder is pre-empted."""
        while True:
            if self._preempted:
                raise Superseded
            self._reading = True
            try:
                piece = await anext(body, None)
            except asyncio.CancelledError:
                if self._was_preempted():
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
        self._holders: dict[str, LockHolder] = {}

    @asynccontextmanager
    async def acquire(self, upload_id: str) -> AsyncIterator[LockHolder]:
        """Acquire an upload: pre-empts the holder before and waits until that has cleaned up."""
        while (before := self._holders.get(upload_id)) is not None:
            before.preempt()
            await before.released.wait()
        holder = self._holders[upload_id] = LockHolder()
        try:
            yield holder
        finally:
            del self._holders[upload_id]
            holder.released.set()

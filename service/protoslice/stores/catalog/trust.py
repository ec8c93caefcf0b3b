"""Trust in tags: for some seconds after a tag was read, readers by its name do not ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from protoslice.concurrency.lru import LruCache
from protoslice.errors import DatabaseUnavailable

STALE_SECONDS: Final = 60.0
"""Seconds for which what was read is believed while the database does not answer."""
_MOST: Final = 1 << 16
_ROOM: Final = 2 << 20
_WEIGHT: Final = 450
"""Bytes of an entry, about, without the tag's name."""


class TrustedTags:
    """Stores that tags pointed at when they were last read, believed for `seconds` since a read began.

    Changes made by this process are seen at once; those of others when the seconds are over.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._read: LruCache[str, tuple[str, float]] = LruCache(most=_MOST, room=_ROOM)
        self._changes = 0

    async def store(self, name: str, read: Callable[[str], Awaitable[str]]) -> str:
        """The id of the store that a tag points at, by `read` unless that was called a moment ago."""
        time = asyncio.get_running_loop().time
        known = self._read.get(name)
        if known is not None and time() - known[1] < self._seconds:
            return known[0]
        begun, changes = time(), self._changes
        try:
            store_id = await read(name)
        except DatabaseUnavailable:
            if known is None or begun - known[1] >= STALE_SECONDS:
                raise
            return known[0]
        if changes == self._changes:  # a read that a change overtook may have found the tag as it was before
            self._read.put(name, (store_id, begun), _WEIGHT + len(name))
        return store_id

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Context in which this process changes a tag; trust in it ends with the context, in errors too."""
        try:
            yield
        finally:
            self._changes += 1
            self._read.drop(name)

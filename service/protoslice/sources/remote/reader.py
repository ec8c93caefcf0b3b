"""Blocking reader of a storage: facts, listings and cached blocks of objects."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Final, TypeVar

from protoslice.concurrency.background import BACKGROUND
from protoslice.concurrency.lru import LruCache
from protoslice.errors import InvalidInput, NotFound
from protoslice.storage.interface import ObjectStat, Storage
from protoslice.storage.keys import ObjectKey

T = TypeVar("T")

BLOCK: Final = 64 << 10
"""Bytes of a block, the least that one request reads."""
_HELD: Final = 64 << 20
_AT_ONCE: Final = 4 << 20
"""Bytes of one request; more are read by several side by side."""


class BlockingReader:
    """Reader of one storage; threads may share it. Calls block."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._held: LruCache[tuple[str, int], bytes] = LruCache(most=_HELD, room=_HELD)
        self._lock = threading.Lock()
        self._process: int | None = os.getpid()

    def find(self, key: ObjectKey) -> ObjectStat | None:
        """Facts of the object, by one request; None when there is no such object."""
        try:
            return self._run(lambda: self.storage.stat(key))
        except NotFound:
            return None

    def listed(self, prefix: ObjectKey | None, most: int) -> list[ObjectStat]:
        """The first `most` objects below the folder `prefix`, in key order."""

        async def work() -> list[ObjectStat]:
            found: list[ObjectStat] = []
            async with aclosing(self.storage.iterate(prefix, limit=min(most, 1000))) as items:
                async for item in items:
                    found.append(item)
                    if len(found) == most:
                        break
            return found

        return self._run(work)

    def held(self, found: ObjectStat, first: int, stop: int) -> dict[int, bytes]:
        """Blocks from `first` to `stop` that were read lately, by number; makes no request."""
        numbers, name = range(first, stop), found.key.text
        with self._lock:
            return {number: data for number in numbers if (data := self._held.get((name, number))) is not None}

    def fetch(self, found: ObjectStat, first: int, stop: int) -> dict[int, bytes]:
        """The blocks `first` to `stop` by number, by requests of at most 4 MiB side by side.

        `Conflict` when the object was replaced since `found`.
        """
        end = min(stop * BLOCK, found.size)
        spans = list(pairwise([*range(first * BLOCK, end, _AT_ONCE), end]))
        parts = self._run(lambda: self.storage.get_ranges(found.key, spans, if_etag=found.etag))
        blocks = dict(enumerate((part[at : at + BLOCK] for part in parts for at in range(0, len(part), BLOCK)), first))
        with self._lock:
            for number, data in blocks.items():
                self._held.put((found.key.text, number), data, len(data))
        return blocks

    def close(self) -> None:
        """Close the storage; may be called twice."""
        if self._process == os.getpid():
            BACKGROUND.run(self.storage.close())
        self._process = None

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._process is None:
            raise InvalidInput("The storage is closed; open the URI again")
        if self._process != os.getpid():
            # The clients of buckets have threads of their own, which a fork leaves behind.
            raise InvalidInput("The storage was opened before a fork; open the URI again in the child process")
        return BACKGROUND.run(work())

"""The backend of `memory://`, which keeps objects in this process, for tests and for services without persistence.

`memory://` opens a new namespace every time. `memory://name` opens the namespace `name`, which is shared within the
process.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import count, islice
from typing import Final

from protoslice.errors import InvalidInput, NotFound
from protoslice.storage.interface import (
    PAGE,
    PIECE,
    Abilities,
    Buffer,
    ObjectContent,
    ObjectStat,
    Page,
    Span,
    Storage,
    Writer,
    refuse_options,
)
from protoslice.storage.keys import ObjectKey
from protoslice.storage.ranges import check_inside, check_limit, check_span
from protoslice.storage.wrappers import PrefixStorage
from protoslice.uris import parse_root

_tags = count(1)
ABILITIES: Final = Abilities(durable=False, shared=False)


def open(uri: str, options: Mapping[str, str]) -> Storage:
    """Open a new namespace or a named one; a path in the URI selects a folder of it."""
    refuse_options("memory", options)
    if uri.rstrip("/") == "memory:":
        return MemoryStorage()
    place = parse_root(uri)
    shared = shared_memory(place.authority)
    return PrefixStorage(shared, ObjectKey("/".join(place.segments))) if place.segments else shared


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    stat: ObjectStat


class MemoryStorage(Storage):
    """A storage in memory, whose objects live as long as the instance.

    The entity tag of the n-th content that the process writes is `etag_of(n)`. Tests pass another function to imitate
    other backends.
    """

    def __init__(self, etag_of: Callable[[int], str] = "{:x}".format) -> None:
        self._etag_of = etag_of
        self._objects: dict[ObjectKey, _Object] = {}
        self._keys: list[ObjectKey] = []

    @property
    def abilities(self) -> Abilities:
        """All abilities that need neither a disk nor a second process."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        return self._find(key, None).stat

    async def get(self, key: ObjectKey) -> ObjectContent:
        found = self._find(key, None)
        return ObjectContent(found.stat, found.data)

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        check_span(start, end)
        found = self._find(key, if_etag)
        check_inside(key, end, found.stat.size)
        return found.data[start:end]

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        return [await self.get_range(key, start, end, if_etag=if_etag) for start, end in spans]

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        found = self._find(key, if_etag)
        stop = found.stat.size if end is None else end
        check_span(start, max(start, stop) if end is None else stop)
        check_inside(key, max(start, stop), found.stat.size)
        for at in range(start, stop, PIECE):
            yield found.data[at : min(at + PIECE, stop)]

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        return self._store(key, bytes(data))

    async def writer(self, key: ObjectKey) -> Writer:
        return _MemoryWriter(self, key)

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        check_limit(limit)
        begin = 0 if after is None else bisect_right(self._keys, after)
        below = (key for key in self._keys[begin:] if key.is_below(prefix))
        items = tuple(self._objects[key].stat for key in islice(below, limit))
        more = len(items) == limit and next(below, None) is not None
        return Page(items, items[-1].key if more else None)

    async def delete(self, key: ObjectKey) -> None:
        if self._objects.pop(key, None) is not None:
            self._keys.remove(key)

    def _find(self, key: ObjectKey, if_etag: str | None) -> _Object:
        found = self._objects.get(key)
        if found is None:
            raise NotFound(f"no object {str(key)!r}")
        found.stat.check_etag(if_etag)
        return found

    def _store(self, key: ObjectKey, data: bytes) -> str:
        stat = ObjectStat(key, len(data), self._etag_of(next(_tags)), datetime.now(UTC))
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = _Object(data, stat)
        return stat.etag


@cache
def shared_memory(name: str) -> MemoryStorage:
    """Return the storage of `memory://name`; the process has a single storage per name."""
    return MemoryStorage()


class _MemoryWriter(Writer):
    def __init__(self, storage: MemoryStorage, key: ObjectKey) -> None:
        self._storage = storage
        self._key = key
        self._data: bytearray | None = bytearray()
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    async def write(self, piece: Buffer) -> None:
        self._open().extend(piece)
        self._size = len(self._open())
        await asyncio.sleep(0)  # lets other tasks run, as in a backend that waits

    async def commit(self) -> str:
        data = bytes(self._open())
        self._data = None
        return await self._storage.put(self._key, data)

    async def abort(self) -> None:
        self._data = None

    def _open(self) -> bytearray:
        if self._data is None:
            raise InvalidInput("this writer is already closed")
        return self._data

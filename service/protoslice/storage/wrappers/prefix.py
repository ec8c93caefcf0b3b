"""Storage view of one folder of another storage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from protoslice.storage.interface import (
    PAGE,
    Abilities,
    Buffer,
    ObjectContent,
    ObjectStat,
    OpenFile,
    Page,
    Span,
    Storage,
    Writer,
)
from protoslice.storage.keys import ObjectKey


class PrefixStorage(Storage):
    """Storage of the objects of `inner` below the folder `prefix`; objects outside are out of reach."""

    def __init__(self, inner: Storage, prefix: ObjectKey) -> None:
        self._inner = inner
        self._prefix = prefix

    @property
    def abilities(self) -> Abilities:
        """Abilities of the inner storage."""
        return self._inner.abilities

    async def stat(self, key: ObjectKey) -> ObjectStat:
        return self._outside(await self._inner.stat(self._inside(key)))

    async def get(self, key: ObjectKey) -> ObjectContent:
        found = await self._inner.get(self._inside(key))
        return ObjectContent(self._outside(found.stat), found.data)

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        return await self._inner.get_range(self._inside(key), start, end, if_etag=if_etag)

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        return await self._inner.get_ranges(self._inside(key), spans, if_etag=if_etag)

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        async with aclosing(self._inner.stream(self._inside(key), start, end, if_etag=if_etag)) as pieces:
            async for piece in pieces:
                yield piece

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        return await self._inner.put(self._inside(key), data)

    async def writer(self, key: ObjectKey) -> Writer:
        return await self._inner.writer(self._inside(key))

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        below = self._prefix if prefix is None else self._inside(prefix)
        page = await self._inner.list(below, after=None if after is None else self._inside(after), limit=limit)
        items = tuple(self._outside(item) for item in page.items)
        return Page(items, None if page.after is None else self._strip(page.after))

    async def delete(self, key: ObjectKey) -> None:
        await self._inner.delete(self._inside(key))

    async def open_file(self, key: ObjectKey) -> OpenFile:
        """See `Storage.open_file`; `stat` of the open file holds the key in the inner storage."""
        return await self._inner.open_file(self._inside(key))

    async def free_bytes(self) -> int:
        return await self._inner.free_bytes()

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        """See `Storage.collect_garbage`; collects in the whole inner storage."""
        return await self._inner.collect_garbage(older_than_seconds)

    async def close(self) -> None:
        """Close the inner storage."""
        await self._inner.close()

    def _inside(self, key: ObjectKey) -> ObjectKey:
        return self._prefix / key

    def _strip(self, key: ObjectKey) -> ObjectKey:
        return ObjectKey(key.text[len(self._prefix.text) + 1 :])

    def _outside(self, found: ObjectStat) -> ObjectStat:
        return replace(found, key=self._strip(found.key))

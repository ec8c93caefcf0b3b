"""Storages that wrap another storage: to observe its calls, to limit late calls, or to show only one folder."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from protoslice.errors import StorageUnavailable
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

T = TypeVar("T")
LATE_SECONDS: Final = 2.0
"""Seconds after which a running call counts as late."""
LATE_CALLS: Final = 1024
"""Number of late calls of a storage above which new calls are refused: a quarter of `max_connections`' default."""
_UNDER_WAY: Final = frozenset({"stream", "write", "commit", "abort"})
"""The steps of streams and writers that were admitted earlier; they count as calls but are never refused."""


class InterceptedStorage(Storage):
    """A storage that passes each call of `inner` through `intercept`.

    Each piece of a stream and each step of a writer counts as one call.
    """

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @abstractmethod
    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """Run `call`, which performs the method `name` of `Storage` or `Writer`, and return its result.

        `key` is the object's key, or the prefix for `list`, or None for a call about the whole storage.
        """

    @property
    def abilities(self) -> Abilities:
        """The abilities of the inner storage."""
        return self._inner.abilities

    async def stat(self, key: ObjectKey) -> ObjectStat:
        return await self.intercept("stat", key, lambda: self._inner.stat(key))

    async def get(self, key: ObjectKey) -> ObjectContent:
        return await self.intercept("get", key, lambda: self._inner.get(key))

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        return await self.intercept("get_range", key, lambda: self._inner.get_range(key, start, end, if_etag=if_etag))

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        return await self.intercept("get_ranges", key, lambda: self._inner.get_ranges(key, spans, if_etag=if_etag))

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        async with aclosing(self._inner.stream(key, start, end, if_etag=if_etag)) as pieces:
            while piece := await self.intercept("stream", key, lambda: anext(pieces, b"")):
                yield piece

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        return await self.intercept("put", key, lambda: self._inner.put(key, data))

    async def writer(self, key: ObjectKey) -> Writer:
        return _InterceptedWriter(self, key, await self.intercept("writer", key, lambda: self._inner.writer(key)))

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        return await self.intercept("list", prefix, lambda: self._inner.list(prefix, after=after, limit=limit))

    async def delete(self, key: ObjectKey) -> None:
        await self.intercept("delete", key, lambda: self._inner.delete(key))

    async def open_file(self, key: ObjectKey) -> OpenFile:
        return await self.intercept("open_file", key, lambda: self._inner.open_file(key))

    async def free_bytes(self) -> int:
        return await self.intercept("free_bytes", None, self._inner.free_bytes)

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        return await self.intercept("collect_garbage", None, lambda: self._inner.collect_garbage(older_than_seconds))

    async def close(self) -> None:
        """Close the inner storage; `intercept` does not see this call."""
        await self._inner.close()


class WrappedWriter(Writer):
    """A writer that forwards all calls to another writer."""

    def __init__(self, inner: Writer) -> None:
        self._inner = inner

    @property
    def size(self) -> int:
        """See `Writer.size`."""
        return self._inner.size

    async def write(self, piece: Buffer) -> None:
        """See `Writer.write`."""
        await self._inner.write(piece)

    async def commit(self) -> str:
        """See `Writer.commit`."""
        return await self._inner.commit()

    async def abort(self) -> None:
        """See `Writer.abort`."""
        await self._inner.abort()


class _InterceptedWriter(WrappedWriter):
    def __init__(self, storage: InterceptedStorage, key: ObjectKey, inner: Writer) -> None:
        super().__init__(inner)
        self._storage = storage
        self._key = key

    async def write(self, piece: Buffer) -> None:
        await self._storage.intercept("write", self._key, lambda: self._inner.write(piece))

    async def commit(self) -> str:
        return await self._storage.intercept("commit", self._key, self._inner.commit)

    async def abort(self) -> None:
        await self._storage.intercept("abort", self._key, self._inner.abort)


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call: its method, its duration, the bytes read, and the class name of its error or None."""

    name: str
    seconds: float
    bytes_read: int
    error: str | None


class MeteredStorage(InterceptedStorage):
    """A storage that reports each finished or cancelled call to `observe`, which must neither block nor raise."""

    def __init__(self, inner: Storage, observe: Callable[[Call], None]) -> None:
        super().__init__(inner)
        self._observe = observe

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        begin = time.perf_counter()
        try:
            result = await call()
        except BaseException as error:
            self._observe(Call(name, time.perf_counter() - begin, 0, type(error).__name__))
            raise
        self._observe(Call(name, time.perf_counter() - begin, _bytes(result), None))
        return result


class LateCallLimit(InterceptedStorage):
    """A storage that refuses calls with `StorageUnavailable` while more than `most` running calls are late.

    So a storage that hangs blocks a bounded number of callers, and a few slow calls do not affect other calls.
    """

    def __init__(self, inner: Storage, most: int = LATE_CALLS) -> None:
        super().__init__(inner)
        self._most = most
        self._begun: dict[object, float] = {}
        """The start times of the running calls, oldest first."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name not in _UNDER_WAY:
            self._admit()
        token = object()
        self._begun[token] = asyncio.get_running_loop().time()
        try:
            return await call()
        finally:
            del self._begun[token]

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        self._admit()
        async with aclosing(super().stream(key, start, end, if_etag=if_etag)) as pieces:
            async for piece in pieces:
                yield piece

    def _admit(self) -> None:
        last_allowed = next(islice(self._begun.values(), self._most, None), None)
        if last_allowed is not None and asyncio.get_running_loop().time() - last_allowed >= LATE_SECONDS:
            raise StorageUnavailable("The storage does not respond, and too many calls wait for it: try again later")


def _bytes(result: object) -> int:
    if isinstance(result, ObjectContent):
        return len(result.data)
    if isinstance(result, bytes):
        return len(result)
    return sum(len(item) for item in result if isinstance(item, bytes)) if isinstance(result, list | tuple) else 0


class PrefixStorage(Storage):
    """A storage of the objects of `inner` below the folder `prefix`; it cannot reach other objects."""

    def __init__(self, inner: Storage, prefix: ObjectKey) -> None:
        self._inner = inner
        self._prefix = prefix

    @property
    def abilities(self) -> Abilities:
        """The abilities of the inner storage."""
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
        """See `Storage.open_file`; the open file's `stat` contains the key of the inner storage."""
        return await self._inner.open_file(self._inside(key))

    async def free_bytes(self) -> int:
        return await self._inner.free_bytes()

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        """See `Storage.collect_garbage`; this covers the whole inner storage, not only the folder."""
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

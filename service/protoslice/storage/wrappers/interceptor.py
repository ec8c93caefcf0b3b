"""Base class for storages that wrap each call of another storage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

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


class InterceptedStorage(Storage):
    """Storage that forwards each call to `inner` through `intercept`.

    Each piece of a stream and each step of a writer is one call.
    """

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @abstractmethod
    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """Result of `call`, which performs the method `name` of `Storage` or `Writer`.

        `key` is the object's key, the prefix in `list`, and None in calls about the whole storage.
        """

    @property
    def abilities(self) -> Abilities:
        """Abilities of the inner storage."""
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
        """Close the inner storage, without `intercept`."""
        await self._inner.close()


class WrappedWriter(Writer):
    """Writer that forwards all calls to another."""

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

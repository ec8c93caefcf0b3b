"""A storage that counts what is asked of it, and how many bytes are given to it to keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from protoslice.storage import Abilities, ObjectKey, Span, Storage
from protoslice.storage.interface import Buffer, Writer
from protoslice.storage.wrappers import InterceptedStorage, WrappedWriter

T = TypeVar("T")


class CountedStorage(InterceptedStorage):
    """Counts one call for each request that a bucket would get; a span of `get_ranges` is one.

    Storage that is not `near` opens no files, as a bucket does not: all that is read is asked for by calls.
    """

    def __init__(self, inner: Storage, *, near: bool) -> None:
        super().__init__(inner)
        self._near = near
        self.calls = 0
        self.written = 0

    @property
    def abilities(self) -> Abilities:
        """See `Storage.abilities`."""
        inner = super().abilities
        return inner if self._near else replace(inner, open_file=False)

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        if name != "write":  # pieces of one object; their number follows that of the bytes
            self.calls += 1
        return await call()

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        """See `Storage.get_ranges`."""
        self.calls += len(spans) - 1
        return await super().get_ranges(key, spans, if_etag=if_etag)

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """See `Storage.put`."""
        self.written += len(data)
        return await super().put(key, data)

    async def writer(self, key: ObjectKey) -> Writer:
        """See `Storage.writer`."""
        return _CountedWriter(self, await super().writer(key))


class _CountedWriter(WrappedWriter):
    def __init__(self, storage: CountedStorage, inner: Writer) -> None:
        super().__init__(inner)
        self._storage = storage

    async def write(self, piece: Buffer) -> None:
        self._storage.written += len(piece)
        await super().write(piece)

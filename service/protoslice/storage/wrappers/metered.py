"""Storage wrappers that watch calls: one reports them, one refuses further ones while too many are late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from protoslice.errors import StorageUnavailable
from protoslice.storage.interface import Buffer, ObjectContent, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.wrappers.interceptor import InterceptedStorage

T = TypeVar("T")
LATE_SECONDS: Final = 2.0
"""Age in seconds of a call from which on it counts as late."""
LATE_CALLS: Final = 1024
"""Late calls of a storage above which further calls are refused: a quarter of the default `max_connections`."""
_UNDER_WAY: Final = frozenset({"stream", "write", "commit", "abort"})
"""Steps of work that was admitted as a whole; they are counted but never refused."""


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call: method, duration, bytes read, and the error's class name or None."""

    name: str
    seconds: float
    bytes_read: int
    error: str | None


class MeteredStorage(InterceptedStorage):
    """Reports each finished or cancelled call to `observe`, which must neither block nor raise."""

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
    """Refuses calls with `StorageUnavailable` while more than `most` calls are `LATE_SECONDS` old.

    A storage that hangs then holds a bounded number of callers; a few slow calls affect no others.
    """

    def __init__(self, inner: Storage, most: int = LATE_CALLS) -> None:
        super().__init__(inner)
        self._most = most
        self._begun: dict[object, float] = {}
        """Start times of the calls under way, oldest first."""

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
            raise StorageUnavailable("The storage does not answer: too many calls wait for it. Try again later")


def _bytes(result: object) -> int:
    if isinstance(result, ObjectContent):
        return len(result.data)
    if isinstance(result, bytes):
        return len(result)
    return sum(len(item) for item in result if isinstance(item, bytes)) if isinstance(result, list | tuple) else 0

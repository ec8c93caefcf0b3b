"""Storage wrapper that reports each call to an observer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from protoslice.storage.interface import ObjectContent, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.wrappers.interceptor import InterceptedStorage

T = TypeVar("T")


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


def _bytes(result: object) -> int:
    if isinstance(result, ObjectContent):
        return len(result.data)
    if isinstance(result, bytes):
        return len(result)
    return sum(len(item) for item in result if isinstance(item, bytes)) if isinstance(result, list | tuple) else 0

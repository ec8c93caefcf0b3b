"""A storage that lets something else happen between two of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from protoslice.storage import ObjectKey, Storage
from protoslice.storage.wrappers.interceptor import InterceptedStorage

T = TypeVar("T")


class InterruptedStorage(InterceptedStorage):
    """Awaits `meanwhile` before call number `at`, counted from `arm`: another replica may act there.

    `at_every_call` interrupts every call there is.
    """

    def __init__(self, inner: Storage, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile
        self._at = 0
        self._calls = 0

    def arm(self, at: int) -> None:
        """Begin to count."""
        self._at, self._calls = at, 0

    @property
    def reached(self) -> bool:
        """True once the call was made."""
        return 0 < self._at <= self._calls

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        self._calls += 1
        if self._calls == self._at:
            await self._meanwhile()
        return await call()


async def at_every_call(at: Callable[[int], Awaitable[bool]], fewest: int) -> None:
    """Run `at` with 1, 2, 3 … until it finds no such call; fails unless there are more than `fewest`."""
    number = 1
    while await at(number):
        number += 1
    assert number > fewest

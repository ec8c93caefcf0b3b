"""Storage with injected faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from protoslice.errors import StorageUnavailable
from protoslice.storage.interface import Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.wrappers import InterceptedStorage

T = TypeVar("T")


class InjectedFault(StorageUnavailable):
    """Error of an injected fault."""


class FaultyStorage(InterceptedStorage):
    """Fails call number `fail_at`, counted from 1; with `stays_down`, all later calls too.

    With `after`, the call takes effect and only its answer is lost, as when a connection breaks too late. A loop over
    `fail_at` = 1, 2, 3 … that ends when `failed` is False has failed each call once. An `abort` counts as a call.
    """

    def __init__(self, inner: Storage, fail_at: int, *, after: bool = False, stays_down: bool = False) -> None:
        super().__init__(inner)
        self._fail_at = fail_at
        self._after = after
        self._stays_down = stays_down
        self.calls: list[str] = []

    @property
    def failed(self) -> bool:
        """True when the fault has happened."""
        return len(self.calls) >= self._fail_at

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        number = len(self.calls)
        due = number == self._fail_at or (self._stays_down and number > self._fail_at)
        result = await call() if self._after or not due else None
        if due:
            raise InjectedFault(f"call {number} ({name}) fails on purpose")
        return result  # type: ignore[return-value]  # not due: the call was made

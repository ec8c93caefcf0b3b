"""Circuit breaker: calls of a storage that has stopped answering fail at once, until it answers again.

A breaker that counted failures alone could be opened by one object that always fails: failures and silence only raise
a suspicion, and a probe of the storage decides. No caller's request serves as the probe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from random import uniform
from typing import Final, TypeVar

from protoslice.errors import CircuitOpen, ProtosliceError, StorageUnavailable
from protoslice.storage.interface import Buffer, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.wrappers.interceptor import InterceptedStorage

T = TypeVar("T")
FAILURES: Final = 5
"""Calls in succession that find the storage unavailable, after which it is suspected."""
SILENCE_SECONDS: Final = 3.0
"""Time without any answer, while calls wait, after which the next call makes the storage suspected.

So does a call that took longer, when it is answered.
"""
PROBE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 5.0
_UNDER_WAY: Final = frozenset({"stream", "write", "commit", "abort"})
"""Steps of work that began while the storage answered; an `abort` is never refused."""
_log = logging.getLogger(__name__)


class CircuitBreaker(InterceptedStorage):
    """Forwards calls while the storage answers; raises `CircuitOpen` at once while it does not."""

    def __init__(
        self, inner: Storage, *, silence_seconds: float = SILENCE_SECONDS, probe_seconds: float = PROBE_SECONDS
    ) -> None:
        super().__init__(inner)
        self._silence_seconds = silence_seconds
        self._probe_seconds = probe_seconds
        self._failures = 0
        self._waiting = 0
        self._answered_at = 0.0
        self._watching: asyncio.Task[None] | None = None
        self.is_open = False
        """True while calls are refused."""
        self.openings = 0
        self.refused = 0
        """Calls that were refused so far."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name not in _UNDER_WAY:
            self._admit()
        begun = asyncio.get_running_loop().time()
        if not self._waiting:
            self._answered_at = begun
        self._waiting += 1
        try:
            result = await call()
        except StorageUnavailable:
            self._failures += 1
            if self._failures >= FAILURES:
                self._suspect()
            raise
        except ProtosliceError:
            self._answered()
            raise
        finally:
            self._waiting -= 1
        self._answered()
        if name not in _UNDER_WAY and self._answered_at - begun > self._silence_seconds:
            self._suspect()  # a caller that asks one thing after the other leaves no silence for others to notice
        return result

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        self._admit()
        async with aclosing(super().stream(key, start, end, if_etag=if_etag)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Stop probing, and close the inner storage."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await super().close()

    def _admit(self) -> None:
        if self.is_open:
            self.refused += 1
            raise CircuitOpen("the storage stopped responding: requests to it fail at once until it responds again")
        if self._waiting and asyncio.get_running_loop().time() - self._answered_at > self._silence_seconds:
            self._suspect()

    def _answered(self) -> None:
        self._failures = 0
        self._answered_at = asyncio.get_running_loop().time()

    def _suspect(self) -> None:
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Probe until the storage answers; the circuit is open meanwhile, once one probe has failed."""
        pause = self._probe_seconds / 4
        try:
            while not await self._answers():
                if not self.is_open:
                    self.is_open = True
                    self.openings += 1
                    _log.error("the storage stopped responding: calls fail at once until a probe succeeds")
                await asyncio.sleep(uniform(pause / 2, pause))  # replicas probe at different moments
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if self.is_open:
                _log.warning("the storage responds again")
        finally:
            self.is_open = False
            self._answered()
            self._watching = None

    async def _answers(self) -> bool:
        """True when the storage answers a listing of one object in time, be it with a refusal."""
        try:
            async with asyncio.timeout(self._probe_seconds):
                await self._inner.list(limit=1)
        except (StorageUnavailable, TimeoutError):
            return False
        except ProtosliceError:
            return True
        return True

"""Storages and catalogues in which another action, or an injected fault, happens between two of their calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from protoslice.database import Database
from protoslice.database.sqlite import SqliteDatabase
from protoslice.database.transactions import CommitUnknown, Work
from protoslice.errors import DatabaseUnavailable, StorageUnavailable
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.wrappers import InterceptedStorage

T = TypeVar("T")


class InterceptedDatabase(Database):
    """A database that forwards each transaction to `inner` through `intercept`."""

    def __init__(self, inner: Database) -> None:
        self.dialect = inner.dialect
        self._inner = inner

    @abstractmethod
    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`, which runs a transaction once; `name` is `write` or `read`."""

    async def _write(self, work: Work[T], *, background: bool) -> T:
        return await self.intercept("write", lambda: self._inner._write(work, background=background))

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return await self.intercept("read", lambda: self._inner._read(work, background=background))

    def _export(self, work: Work[T]) -> T:
        return self._inner._export(work)

    async def close(self) -> None:
        """Leave the inner database open, because others use it too."""


class Interruption:
    """A hook that awaits `meanwhile` before one call: call number `at` of a storage or a database.

    Calls of both are counted together, from `arm` on. `meanwhile` may act like another replica. `at_every_call`
    interrupts every call in turn.
    """

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile = meanwhile
        self._at = 0
        self._calls = 0

    def arm(self, at: int) -> None:
        """Begin to count; `at` is the number of the interrupted call."""
        self._at, self._calls = at, 0

    @property
    def reached(self) -> bool:
        """True if the interrupted call was reached."""
        return 0 < self._at <= self._calls

    async def count(self) -> None:
        """Count a call that is about to be made."""
        self._calls += 1
        if self._calls == self._at:
            await self._meanwhile()


class InterruptedStorage(InterceptedStorage):
    """A storage whose calls are interrupted."""

    def __init__(self, inner: Storage, interruption: Interruption) -> None:
        super().__init__(inner)
        self._interruption = interruption

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        await self._interruption.count()
        return await call()


class InterruptedDatabase(InterceptedDatabase):
    """A database whose transactions are interrupted."""

    def __init__(self, inner: Database, interruption: Interruption) -> None:
        super().__init__(inner)
        self._interruption = interruption

    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedDatabase.intercept`."""
        await self._interruption.count()
        return await call()


class FaultyDatabase(InterceptedDatabase):
    """A database that fails like its `faults` storage; its transactions count as calls of that storage.

    With `after`, a write takes effect, and the answer to its COMMIT is lost. For SQLite it fails instead as if the
    process had died.
    """

    def __init__(self, inner: Database, faults: FaultyStorage) -> None:
        super().__init__(inner)
        self._faults = faults

    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedDatabase.intercept`."""
        faults = self._faults
        faults.calls.append(name)
        due = faults.failed if faults._stays_down else len(faults.calls) == faults._fail_at
        if not due:
            return await call()
        if faults._after:
            result = await call()
            if name == "write" and not isinstance(self._inner, SqliteDatabase):
                raise CommitUnknown(result)
        raise DatabaseUnavailable(f"transaction {len(faults.calls)} fails on purpose")


async def at_every_call(at: Callable[[int], Awaitable[bool]], fewest: int) -> None:
    """Call `at` with 1, 2, 3 … until it returns False; fail unless it returned True at least `fewest` times."""
    number = 1
    while await at(number):
        number += 1
    assert number > fewest


class InjectedFault(StorageUnavailable):
    """The error of an injected fault."""


class FaultyStorage(InterceptedStorage):
    """A storage that fails call number `fail_at`, counted from 1; with `stays_down`, also all later calls.

    With `after`, the call takes effect and only its answer is lost, as when a connection breaks too late. A loop over
    `fail_at` = 1, 2, 3 … until `failed` is False fails each call once. An `abort` counts as a call.
    """

    def __init__(self, inner: Storage, fail_at: int, *, after: bool = False, stays_down: bool = False) -> None:
        super().__init__(inner)
        self._fail_at = fail_at
        self._after = after
        self._stays_down = stays_down
        self.calls: list[str] = []

    @property
    def failed(self) -> bool:
        """True if the fault has happened."""
        return len(self.calls) >= self._fail_at

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        number = len(self.calls)
        due = number == self._fail_at or (self._stays_down and number > self._fail_at)
        result = await call() if self._after or not due else None
        if due:
            raise InjectedFault(f"call {number} ({name}) fails on purpose")
        return result  # type: ignore[return-value]  # not due: the call was made

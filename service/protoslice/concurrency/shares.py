"""Places for work that waits or is costly: their number is limited in total and for each client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Never, Protocol

from protoslice.errors import ClientLimit, TooMany

LOOK_SECONDS: Final = 5.0
"""Seconds between two checks of the work for which other clients wait."""
_SLOW: Final = 16
"""Work below this multiple of the lowest speed may be preempted for a client that has fewer places."""


class Shares:
    """A limited number of places: `most` in total, and `each` for one client.

    A limit of 0 means unlimited. The limit for each client does not apply to the client "".
    """

    def __init__(self, most: int, each: int, what: str) -> None:
        """Set the limits; `what` is the plural name of the work, for messages."""
        self._most = most
        self._each = each
        self._what = what
        self._taken = 0
        self._of: Counter[str] = Counter()

    def take(self, client: str) -> None:
        """Take a place; raise `TooMany` or `ClientLimit` if none is free."""
        if self._has_share(client, self._of):
            raise ClientLimit(
                f"This client has reached its limit of {self._each} {self._what}: try again later", limit=self._each
            )
        if self._is_full():
            raise TooMany(
                f"The service has reached its limit of {self._most} {self._what}: try again later", limit=self._most
            )
        self._taken += 1
        self._of[client] += 1

    def _is_full(self) -> bool:
        return 0 < self._most <= self._taken

    def _has_share(self, client: str, held: Counter[str]) -> bool:
        """Return True if a client has as many places as it may have."""
        return client != "" and 0 < self._each <= held[client]

    def give(self, client: str) -> None:
        """Release a place."""
        self._taken -= 1
        self._of[client] -= 1
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Hold a place while the context lasts; raise `TooMany` or `ClientLimit` if none is free."""
        self.take(client)
        try:
            yield
        finally:
            self.give(client)


class Work(Protocol):
    """Work on bytes that a client sends; the work has a place, or waits for a place."""

    def progress(self) -> tuple[int, float]:
        """Return the number of bytes that have arrived, and the seconds that the work has waited for them."""

    def preempt(self) -> None:
        """Make the work fail the next time it waits for its client, so that it releases its place."""

    async def left(self) -> Never:
        """Wait until the client has disconnected, and raise an error."""


class QueuedShares(Shares):
    """Shares for which clients queue: the next free place goes to the waiting client with the fewest places.

    While clients wait, work whose own client sends hardly any bytes is preempted.
    """

    def __init__(self, most: int, each: int, what: str, *, seconds: float, slowest: int) -> None:
        """Let clients wait for `seconds`; work is slow below `slowest` bytes per second."""
        super().__init__(most, each, what)
        self._seconds = seconds
        self._slowest = max(1, slowest)
        self._waiting: dict[asyncio.Future[None], str] = {}
        """Waiting clients, by the future that each waits for, in order of arrival."""
        self._works: dict[Work, str] = {}
        self._seen: dict[Work, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def queued(self, client: str, work: Work) -> AsyncIterator[None]:
        """Hold a place while the context lasts; raise `TooMany` or `ClientLimit` if none becomes free in time."""
        try:
            self.take(client)
        except TooMany:
            if not self._seconds:
                raise
            await self._turn(client, work)
        self._works[work] = client
        try:
            yield
        finally:
            del self._works[work]
            self.give(client)

    def give(self, client: str) -> None:
        """Release a place; a waiting caller gets it if there is one."""
        super().give(client)
        waiting = {turn: key for turn, key in self._waiting.items() if not self._has_share(key, self._of)}
        if waiting and not self._is_full():
            turn = min(waiting, key=lambda each: self._of[waiting[each]])
            self.take(self._waiting.pop(turn))
            turn.set_result(None)

    async def _turn(self, client: str, work: Work) -> None:
        """Wait for a place, and take it."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = client
        if self._timer is None:
            self._watch()
        left = asyncio.create_task(work.left())
        try:
            await asyncio.wait((turn, left), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            gone = left.done()
            left.cancel()
            await asyncio.wait((left,))
            if gone:
                left.result()
            if not turn.done():
                self.take(client)  # this raises the right error: a free place would already have been assigned
        except BaseException:
            if turn.done():
                self.give(client)
            raise
        finally:
            left.cancel()
            self._waiting.pop(turn, None)

    def _watch(self) -> None:
        self._seen = {work: work.progress() for work in self._works}
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self.look)

    def look(self) -> None:
        """Preempt slow work while other clients wait, beginning with the work that was slowest since the last check."""
        self._timer = None
        slow: list[tuple[float, Work]] = []
        for work in self._works:
            (received, waited), before = work.progress(), self._seen.get(work)
            # Only work that mostly waited for its client counts: for other work, the client is not the slow part.
            if before is not None and (idle := waited - before[1]) >= LOOK_SECONDS / 2:
                slow.append(((received - before[0]) / idle, work))
        self._preempt(sorted(slow, key=lambda each: each[0]))
        self._seen = {}
        if self._waiting:
            self._watch()

    def _preempt(self, slow: list[tuple[float, Work]]) -> None:
        held = self._of.copy()
        for client in self._waiting.values():
            found = next((each for each in slow if self._gives_way(*each, client, held)), None)
            if found is not None:
                slow.remove(found)
                held[self._works[found[1]]] -= 1
                held[client] += 1
                found[1].preempt()

    def _gives_way(self, speed: float, work: Work, client: str, held: Counter[str]) -> bool:
        """Return True if `work` should lose its place to `client`.

        Work that is not slow is preempted only to make the shares of clients more equal.
        """
        owner = self._works[work]
        if self._has_share(client, held):
            return owner == client and speed < self._slowest
        return speed < self._slowest or (speed < _SLOW * self._slowest and held[owner] > held[client] + 1)

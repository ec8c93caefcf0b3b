"""Room of a space: what is left of its quota by the usage that was read last; transactions have the exact limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from protoslice.catalog.spaces import Account, Quota, SpaceRow, SpaceTable, SpaceUsage, check_quota, exceeded
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.database.transactions import ACTOR
from protoslice.errors import NotFound, SpaceLimit

FRESH_SECONDS: Final = 1.0
"""Seconds for which usage and quota are believed. Commits look again, in their own transaction."""


class Quotas:
    """Quota of one space over the defaults of the service, and the usage that was read last."""

    def __init__(self, spaces: SpaceTable, space: str, defaults: Quota, *, entries: int = 0) -> None:
        """`entries` is the limit of the service for tags, commits and the like in one space; 0 is no limit."""
        self._table = spaces
        self._space = space
        self.defaults = defaults
        self._entries = entries
        self.quota = defaults
        """Limits of the space; 0 means unlimited."""
        self._held = SpaceUsage()
        self._read_at = float("-inf")
        self._reading: SingleFlight[None, None] = SingleFlight()
        self.requests = 0
        """Requests under way at this replica."""

    @property
    def account(self) -> Account:
        """The account by which transactions count what the space holds."""
        return Account(self._space, self.defaults.stored_bytes or 0, self.defaults.stores or 0, self._entries)

    @property
    def used(self) -> SpaceUsage:
        """What the space held when that was read last."""
        return self._held

    def learn(self, row: SpaceRow) -> None:
        """Take over quota and usage as they were read just now."""
        self.quota, self._held = row.quota.over(self.defaults), row.held
        self._read_at = asyncio.get_running_loop().time()

    async def refresh(self, *, after_seconds: float = 0.0) -> None:
        """Read quota and usage, unless that was done less than `after_seconds` ago."""
        if asyncio.get_running_loop().time() >= self._read_at + after_seconds:
            await self._reading.get(None, self._read)

    async def check(self, *, stored_bytes: int = 0, stores: int = 0) -> None:
        """Raise `QuotaExceeded` if the space has no room for so much more."""
        await self.refresh(after_seconds=FRESH_SECONDS)
        if self.quota.stored_bytes or self.quota.stores:
            check_quota(
                self._held, self.quota.stored_bytes or 0, self.quota.stores or 0, stored_bytes, stores, ACTOR.get()
            )

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request under way while the context lasts; raise `SpaceLimit` if there are too many."""
        most = self.quota.requests
        if most and self.requests >= most:
            said = f"{self.requests} concurrent requests in this space, the limit is {most}"
            raise SpaceLimit(exceeded(said, ACTOR.get()))
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def check_open_uploads(self, count: int) -> None:
        """Raise `SpaceLimit` if `count` open uploads are as many as the space may have."""
        most = self.quota.open_uploads
        if most and count >= most:
            said = f"{count} open uploads in this space, the limit is {most}; finish or remove some"
            raise SpaceLimit(exceeded(said, ACTOR.get()))

    async def _read(self) -> None:
        with suppress(NotFound):
            self.learn(await self._table.get(self._space))

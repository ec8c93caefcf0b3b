"""Room of a space: how much of its quota is left, as far as this replica knows.

A replica counts what it takes in itself at once, and tells the others through the ledger at most every
`SHARED_SECONDS`. A quota may therefore be exceeded by what the other replicas have taken in since they last told, and
is put right by each collection, which counts anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from protoslice.errors import IntegrityError, QuotaExceeded, SpaceLimit
from protoslice.sizes import format_size
from protoslice.storage import Storage
from protoslice.stores.quotas.ledger import Ledgers, SpaceLedger
from protoslice.stores.quotas.model import Quota

SHARED_SECONDS: Final = 10.0
"""Time between two looks at the ledger while something is written."""


class SpaceRoom:
    """Counts of one space in this process, and its quota over the defaults of the service."""

    def __init__(self, storage: Storage, defaults: Quota) -> None:
        self._ledgers = Ledgers(storage)
        self.defaults = defaults
        self._known = SpaceLedger()
        self._quota = Quota().over(defaults)
        self._bytes = 0
        self._stores = 0
        self.requests = 0
        """Requests under way at this replica."""
        self._shared_at = float("-inf")
        self._sharing = asyncio.Lock()
        self._fault: IntegrityError | None = None
        """Set while the ledger does not parse: the space takes nothing in then, as its quota is unknown."""
        self.is_touched = False
        """True when something was asked of the space since the ledger was last looked at."""

    @property
    def quota(self) -> Quota:
        """Limits of the space, those of the service included; 0 is no limit."""
        return self._quota

    @property
    def used(self) -> SpaceLedger:
        """The ledger with what this replica has not told yet, never below zero."""
        return self._known.plus(self._bytes, self._stores)

    async def share(self, *, after_seconds: float = 0.0) -> None:
        """Tell other replicas what was taken in, and learn what they did, unless that was done just now.

        A ledger that does not parse is no error before something is to be taken in.
        """
        if self._is_fresh(after_seconds):
            return
        async with self._sharing:
            if not self._is_fresh(after_seconds):
                await self._share()

    async def set_quota(self, quota: Quota) -> None:
        """Set the limits of the space; `InvalidInput` for impossible ones. Other replicas know within seconds."""
        quota.check()
        async with self._sharing:
            await self._tell(
                lambda ledger: SpaceLedger(quota, ledger.stored_bytes, ledger.stores, ledger.counted),
                mended=self._known,
            )

    async def check(self, *, stored_bytes: int = 0, stores: int = 0) -> None:
        """Raise `QuotaExceeded` when the space has no room for so much more.

        `IntegrityError` while its ledger does not parse.
        """
        if self._fault is not None or self._quota.stored_bytes or self._quota.stores:
            await self.share(after_seconds=SHARED_SECONDS)
            if self._fault is not None:
                raise IntegrityError(self._fault.message)
            self._check(stored_bytes, stores)

    async def take(self, *, stored_bytes: int = 0, stores: int = 0) -> None:
        """Count so much more; `QuotaExceeded`, with nothing counted, when there is no room for it."""
        await self.check(stored_bytes=stored_bytes, stores=stores)
        self._bytes += stored_bytes
        self._stores += stores
        self.is_touched = True

    def give(self, *, stored_bytes: int = 0, stores: int = 0) -> None:
        """Count so much less."""
        self._bytes -= stored_bytes
        self._stores -= stores
        self.is_touched = True

    async def exchange(self, size: int, write: Callable[[], Awaitable[int]]) -> None:
        """Count `size` bytes, which `write` puts in place of as many as it returns; count nothing if it fails."""
        await self.take(stored_bytes=size)
        try:
            before = await write()
        except BaseException:
            self.give(stored_bytes=size)
            raise
        self.give(stored_bytes=before)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request under way while the context lasts; `SpaceLimit` when there are too many."""
        self.is_touched = True
        most = self._quota.requests
        if most and self.requests >= most:
            raise SpaceLimit(f"Quota exceeded: {self.requests} concurrent requests in this space, the limit is {most}")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def check_open_uploads(self, count: int) -> None:
        """Raise `SpaceLimit` when `count` open uploads are as many as the space may have."""
        most = self._quota.open_uploads
        if most and count >= most:
            raise SpaceLimit(
                f"Quota exceeded: {count} open uploads in this space, the limit is {most}; finish or remove some"
            )

    def _check(self, stored_bytes: int, stores: int) -> None:
        quota, used = self._quota, self.used
        if stored_bytes and quota.stored_bytes and used.stored_bytes + stored_bytes > quota.stored_bytes:
            raise QuotaExceeded(
                f"Quota exceeded: the space stores {_size(used.stored_bytes)} of {_size(quota.stored_bytes)} and "
                f"has no room for {_size(stored_bytes)} more. Removed stores count until garbage collection "
                "deletes their data"
            )
        if stores and quota.stores and used.stores + stores > quota.stores:
            raise QuotaExceeded(f"Quota exceeded: the space has {used.stores} of {quota.stores} stores; remove some")

    def _is_fresh(self, seconds: float) -> bool:
        return asyncio.get_running_loop().time() < self._shared_at + seconds

    async def _share(self) -> None:
        try:
            if self._bytes or self._stores:
                await self._tell(lambda ledger: ledger)
            else:
                self._learn(await self._ledgers.read())
        except IntegrityError as error:
            self._fault = error
            self._shared_at = asyncio.get_running_loop().time()

    async def _tell(self, changed: Callable[[SpaceLedger], SpaceLedger], *, mended: SpaceLedger | None = None) -> None:
        """Add what is untold to the ledger as `changed` makes it; `mended` is `Ledgers.change`'s."""
        told_bytes, told_stores = self._bytes, self._stores
        ledger = await self._ledgers.change(lambda there: changed(there.plus(told_bytes, told_stores)), mended=mended)
        # Bytes counted while the storage answered are still to be told.
        self._bytes -= told_bytes
        self._stores -= told_stores
        self._learn(ledger)

    def _learn(self, ledger: SpaceLedger) -> None:
        self._known, self._fault = ledger, None
        self._quota = ledger.quota.over(self.defaults)
        self._shared_at = asyncio.get_running_loop().time()
        self.is_touched = bool(self._bytes or self._stores)


def _size(size: int) -> str:
    return format_size(size) if size < 1024 else f"{format_size(size)} ({size} B)"

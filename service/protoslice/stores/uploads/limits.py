"""Limits on open uploads, in all and per client, counted by the records that all replicas share."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from protoslice.concurrency.gather import each_concurrently
from protoslice.errors import ClientLimit, ProtosliceError, SpaceLimit, TooMany
from protoslice.storage import ObjectStat, Storage
from protoslice.stores.clock import now
from protoslice.stores.layout import keys
from protoslice.stores.quotas.room import SpaceRoom
from protoslice.stores.uploads.model import UploadOptions
from protoslice.stores.uploads.records import UploadRecords, end_upload, load_record

COUNTED_SECONDS: Final = 60
FULL_SECONDS: Final = 1
"""Seconds that a count is reused; less when it leads to a refusal."""
SHARE: Final = 20
"""Reuse of a count as a multiple of the time it took, which bounds the share of time spent counting."""


class OpenUploadLimits:
    """Number of open uploads in one storage and its limits. A limit per client of 0 is none."""

    def __init__(self, storage: Storage, options: UploadOptions, room: SpaceRoom) -> None:
        self._storage = storage
        self._space = room
        self._options = options
        self._open: Counter[str] = Counter()
        self._counted_at = float("-inf")
        self._took = 0.0

    async def check(self, client: str) -> None:
        """Raise `TooMany`, `ClientLimit` or `SpaceLimit` when `client` may begin no upload.

        Counts again when the count is old.
        """
        time = asyncio.get_running_loop().time()
        believed = FULL_SECONDS if self._fault(client) else COUNTED_SECONDS
        if time > self._counted_at + max(believed, SHARE * self._took):
            self._counted_at = time
            self._open = await self._count()
            self._took = asyncio.get_running_loop().time() - time
        if fault := self._fault(client):
            raise fault

    def take(self, client: str) -> None:
        """Count a new upload of `client`."""
        self._open[client] += 1

    def give(self, client: str) -> None:
        """Count an upload of `client` no longer."""
        self._open[client] = max(0, self._open[client] - 1)

    def _fault(self, client: str) -> TooMany | None:
        """The error when `client` may begin no upload now; None when it may."""
        most, each = self._options.max_open, self._options.max_open_per_client
        if self._open.total() >= most:
            return TooMany(f"Too many open uploads ({most}): finish some, or wait until they expire")
        if each and client and self._open[client] >= each:
            return ClientLimit(f"Too many open uploads of this client ({each}): finish some, or wait until they expire")
        try:
            self._space.check_open_uploads(self._open.total())
        except SpaceLimit as error:
            return error
        return None

    async def _count(self) -> Counter[str]:
        found: Counter[str] = Counter()

        async def count(stat: ObjectStat) -> None:
            if (client := await self._client(stat)) is not None:
                found[client] += 1

        await each_concurrently(count, self._storage.iterate(keys.UPLOADS))
        return found

    async def _client(self, stat: ObjectStat) -> str | None:
        """Client of an open upload's record; None for other records. Ends an upload that has expired."""
        with suppress(ProtosliceError):
            held = await load_record(self._storage, stat.key)
            if held.upload.state in {"open", "complete"} and not held.upload.used:
                if held.upload.expires >= now():
                    return held.upload.client
                await end_upload(UploadRecords(self._storage), held)
        return None

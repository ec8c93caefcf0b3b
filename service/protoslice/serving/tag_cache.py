"""Tags of a space, where readers by the name of a tag do not ask again for some seconds after it was read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from protoslice.catalog.spaces import Account
from protoslice.catalog.tags import StoredTag, TagTable
from protoslice.concurrency.lru import LruCache
from protoslice.database import Database
from protoslice.errors import DatabaseUnavailable, NotFound

STALE_SECONDS: Final = 60.0
"""Seconds for which what was read is believed while the database does not answer."""
_MOST: Final = 1 << 16
_ROOM: Final = 2 << 20
_WEIGHT: Final = 450
"""Bytes of an entry, about, without the tag's name."""


class TagCache(TagTable):
    """Tags of one space, with the stores that they pointed at, believed for `trust_seconds` since a read began.

    Changes made by this process are seen at once; those of others when the seconds are over.
    """

    def __init__(self, database: Database, account: Account, *, trust_seconds: float = 0) -> None:
        super().__init__(database, account)
        self._trust_seconds = trust_seconds
        self._read: LruCache[str, tuple[str, float]] = LruCache(most=_MOST, room=_ROOM)
        self._changes = 0

    async def store(self, name: str) -> str:
        """Return the id of the store that a tag points at, or did a moment ago; raise `NotFound` without such a tag."""
        time = asyncio.get_running_loop().time
        known = self._read.get(name)
        if known is not None and time() - known[1] < self._trust_seconds:
            return known[0]
        begun, changes = time(), self._changes
        try:
            store_id = (await self.get(name)).store
        except DatabaseUnavailable:
            if known is None or begun - known[1] >= STALE_SECONDS:
                raise
            return known[0]
        if changes == self._changes:  # a read that a change overtook may have found the tag as it was before
            self._read.put(name, (store_id, begun), _WEIGHT + len(name))
        return store_id

    async def version_before(self, name: str) -> str | None:
        """Return the id of the store that a tag points at, or else that of the last of its name; None if there is none.

        The last of its name is for `resnet50:4` the tag set last among those that begin with `resnet50:`.
        """
        with suppress(NotFound):
            return await self.store(name)
        family, colon, _ = name.rpartition(":")
        last = await self.last_set(family + colon) if colon else None
        return None if last is None else last.store

    async def put(
        self, names: Sequence[str], store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> list[tuple[StoredTag, bool]]:
        """See `TagTable.put`."""
        try:
            return await super().put(names, store, if_match=if_match, if_none_match=if_none_match)
        finally:
            self.invalidate(names)

    async def remove(self, name: str, *, if_match: str | None = None) -> None:
        """See `TagTable.remove`."""
        try:
            await super().remove(name, if_match=if_match)
        finally:
            self.invalidate([name])

    def invalidate(self, names: Iterable[str]) -> None:
        """Forget where tags point, which this process has changed, perhaps with a store."""
        self._changes += 1
        for name in names:
            self._read.drop(name)

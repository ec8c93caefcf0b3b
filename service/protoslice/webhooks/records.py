"""Letters of webhooks, in folders of the storage that no space reaches.

webhooks/outbox/<hook>/<letter>    an event on its way, written before the change that it tells of
webhooks/dead/<hook>/<letter>      an event that was given up
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from protoslice.concurrency.gather import each_concurrently, map_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores import ResultPage
from protoslice.stores.catalog.named_records import NamedRecords, after
from protoslice.webhooks.model import Letter

_log = logging.getLogger(__name__)

OUTBOX: Final = ObjectKey("webhooks/outbox")
DEAD: Final = ObjectKey("webhooks/dead")
MOST_DEAD: Final = 1000
"""Dead letters of a webhook; the oldest go first."""
MOST_WAITING: Final = 10_000
"""Letters of a webhook that wait; the oldest beyond them are given up."""


class Letters:
    """Letters of all webhooks, in the outbox or dead; their names begin with the time of their writing."""

    def __init__(self, storage: Storage, folder: ObjectKey) -> None:
        self._storage = storage
        self._folder = folder
        self._records = NamedRecords(storage, folder, "letter")

    async def add(self, hook: str, letter: Letter) -> str:
        """Write a letter; returns the entity tag of its record. `Conflict` when it lies there already."""
        return await self._records.create(self._folder / hook / letter.id, letter.encode())

    async def replace(self, hook: str, letter: Letter, etag: str) -> str | None:
        """Replace a letter; its new entity tag, or None when another replica has taken or delivered it."""
        with suppress(Conflict, NotFound):
            return await self._records.replace(self._folder / hook / letter.id, letter.encode(), etag)
        return None

    async def drop(self, hook: str, letter: str) -> None:
        """Remove a letter; no error when it is gone."""
        with suppress(NotFound):
            await self._storage.delete(self._folder / hook / letter)

    async def drop_all(self, hook: str) -> None:
        """Remove all letters of a webhook."""
        await each_concurrently(lambda stat: self._storage.delete(stat.key), self._storage.iterate(self._folder / hook))

    async def page(self, hook: str, *, limit: int, cursor: str | None = None) -> ResultPage[tuple[Letter, str]]:
        """A page of the letters of a webhook with their entity tags, oldest first."""
        folder = self._folder / hook
        page = await self._storage.list(folder, after=after(folder, cursor), limit=limit)
        found = await map_concurrently(self._read, page.items)
        return ResultPage(
            [letter for letters in found for letter in letters], page.after.segments[-1] if page.after else None
        )

    async def _read(self, stat: ObjectStat) -> list[tuple[Letter, str]]:
        """The listed letter and its entity tag; an empty list when it is gone or damaged."""
        try:
            return [(Letter.decode(data), found.etag) for data, found in await self._records.listed([stat])]
        except IntegrityError:
            _log.exception("delivery %s is unreadable and was skipped", stat.key)
            return []

    async def beyond(self, hook: str, most: int) -> list[str]:
        """Names of the oldest letters beyond `most`."""
        names = [stat.key.segments[-1] async for stat in self._storage.iterate(self._folder / hook)]
        return names[: max(0, len(names) - most)]

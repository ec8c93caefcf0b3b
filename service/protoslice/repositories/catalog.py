"""Repositories of one storage, by name."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from protoslice.errors import Conflict, NotFound
from protoslice.repositories.faults import NoRepository, RepositoryExists
from protoslice.repositories.model import Commit, PushedTags
from protoslice.repositories.names import check_repository
from protoslice.repositories.records import HistoryRecords
from protoslice.repositories.repository import Repository
from protoslice.repositories.sessions import XorbSessions
from protoslice.repositories.staging import StagedFiles
from protoslice.storage import Storage, quote
from protoslice.stores import Stores
from protoslice.stores.catalog.named_records import NamedRecords, is_removal_mark
from protoslice.stores.clock import now
from protoslice.stores.layout import keys

_NO_HISTORY: Final = "none"
"""Id of no history: those of repositories are random."""


class Repositories:
    """Repositories over `stores`, whose records lie in the same storage."""

    def __init__(self, storage: Storage, stores: Stores, *, pushed: Callable[[str], PushedTags] | None = None) -> None:
        """`pushed` gives the tags of another protocol by the name of a repository."""
        self._storage = storage
        self._stores = stores
        self._pushed = pushed
        self._records = NamedRecords(storage, keys.REPOSITORIES, "repository")

    async def create(self, name: str) -> Repository:
        """Create a repository; `RepositoryExists` when there is one of that name."""
        # A history of its own for each: what a removal left behind belongs to no later repository of the name.
        history, time = secrets.token_hex(16), now()
        data = json.dumps({"history": history, "created": time.isoformat()}).encode()
        try:
            await self._records.create(keys.repository(check_repository(name)), data)
        except Conflict:
            raise RepositoryExists(name) from None
        return self._opened(name, time, history)

    async def get(self, name: str) -> Repository:
        """The repository called `name`, to be changed; `NoRepository` when there is none."""
        history, created = await self._read(name)
        return self._opened(name, created, history)

    async def find(self, name: str) -> Repository:
        """The repository called `name`, to be read; also one that another protocol alone has filled.

        `NoRepository` when there is neither.
        """
        try:
            return await self.get(name)
        except NoRepository:
            if self._pushed is None or not await self._pushed(name).exist():
                raise
            return self._opened(name, Commit().time, _NO_HISTORY)

    async def names(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """A page of the names that begin with `prefix`, by their keys, and True when there are more."""
        start = keys.before_tags(quote(prefix), keys.REPOSITORIES) if after is None else keys.repository(after)
        found: list[str] = []
        async for stat in self._storage.iterate(keys.REPOSITORIES, after=start, limit=limit + 1):
            name = keys.name_of(stat.key)
            if not name.startswith(prefix):
                break
            if is_removal_mark(stat):
                continue
            if len(found) == limit:
                return found, True
            found.append(name)
        return found, False

    async def remove(self, name: str) -> None:
        """Remove a repository and its history. Stores of its commits stay, as others may share them."""
        history, _ = await self._read(name)
        with suppress(NotFound):
            await self._records.remove(keys.repository(name), None)
        async for stat in self._storage.iterate(keys.HISTORIES / history):
            with suppress(NotFound):
                await self._storage.delete(stat.key)

    def _opened(self, name: str, created: datetime, history: str) -> Repository:
        staged = StagedFiles(self._storage, history, self._stores)
        sessions = XorbSessions(self._storage, history, self._stores)
        pushed = None if self._pushed is None else self._pushed(name)
        records = HistoryRecords(self._storage, history, name)
        return Repository(name, created, records, self._stores, staged, sessions, pushed)

    async def _read(self, name: str) -> tuple[str, datetime]:
        """Id of the history of a repository, and the time of its creation."""
        try:
            data, _ = await self._records.read(keys.repository(check_repository(name)))
        except NotFound:
            raise NoRepository(name) from None
        raw = json.loads(data)
        return raw["history"], datetime.fromisoformat(raw["created"])

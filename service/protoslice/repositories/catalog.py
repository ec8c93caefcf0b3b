"""Repositories of one space, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protoslice.catalog.abandoned import purge_repositories
from protoslice.catalog.database import UniqueViolation, time_of
from protoslice.catalog.git_objects import GitObjectTable
from protoslice.catalog.labels import HUB, OCI
from protoslice.catalog.repositories import HistoryTable, RepositoryRow, RepositoryTable
from protoslice.repositories.faults import NoRepository, RepositoryExists, RepositoryMoved
from protoslice.repositories.model import PushedTags
from protoslice.repositories.names import check_repository
from protoslice.repositories.records import HistoryRecords
from protoslice.repositories.repository import Repository
from protoslice.repositories.sessions import XorbSessions
from protoslice.repositories.staging import StagedFiles
from protoslice.stores import Stores

_NO_HISTORY: Final = -1
"""Id of no repository: those of repositories are positive."""


class Repositories:
    """Repositories over `stores`."""

    def __init__(self, stores: Stores, *, pushed: Callable[[str], PushedTags] | None = None) -> None:
        """`pushed` gives the tags of another protocol by the name of a repository."""
        self._stores = stores
        self._pushed = pushed
        self._table = RepositoryTable(stores.database, stores.room.account, HUB)
        self._artifacts = RepositoryTable(stores.database, stores.room.account, OCI)

    async def create(self, name: str) -> Repository:
        """Create a repository; raise `RepositoryExists` if there is one of that name in any case."""
        try:
            return self._opened(await self._table.create(check_repository(name)))
        except UniqueViolation:
            raise await self._exists(name) from None

    async def get(self, name: str) -> Repository:
        """Return the repository called `name`, to be changed; raise `NoRepository` if there is none.

        That is `RepositoryMoved` if a repository had this name, or has it in another case.
        """
        found = await self.current(name)
        if found.name != name:
            raise RepositoryMoved(name, found.name)
        return found

    async def current(self, name: str) -> Repository:
        """Return the repository called `name`, in any case, or else the last that was; `NoRepository` for neither."""
        row = await self._table.get(check_repository(name))
        if row is None:
            raise NoRepository(name)
        return self._opened(row)

    async def find(self, name: str, *, moved: bool = False) -> Repository:
        """Return the repository called `name`, to be read, even if only another protocol has filled it.

        Raise `NoRepository` if there is neither, `RepositoryMoved` for another case and a former name, unless those
        that were `moved` are wanted too.
        """
        try:
            return await self.get(name)
        except NoRepository as error:
            current = error.current if isinstance(error, RepositoryMoved) else None
            key = name.lower()
            if current is None or current.lower() != key:  # artifacts of a name go before its former repository
                other = await self._artifacts.get(key)
                if other is not None and self._pushed is not None and await self._pushed(key).exist():
                    if name != key and not moved:
                        raise RepositoryMoved(name, key) from None
                    return self._opened(RepositoryRow(_NO_HISTORY, key, 0), other.id)
            if current is None or not moved:
                raise
            return await self.get(current)

    async def names(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of the names that begin with `prefix`, in order, and True if there are more."""
        rows = await self._table.page(prefix, limit + 1, after or "")
        return [row.name for row in rows[:limit]], len(rows) > limit

    async def rename(self, name: str, new: str) -> None:
        """Rename a repository; raise `NoRepository` if there is none, `RepositoryExists` if the new name is taken."""
        try:
            if not await self._table.rename(check_repository(name), check_repository(new)):
                raise NoRepository(name)
        except UniqueViolation:
            raise await self._exists(new) from None

    async def remove(self, name: str) -> None:
        """Remove a repository, its history, its artifacts, and the stores that only these have made.

        Stores that something else names stay.
        """
        removed = await self._table.remove(check_repository(name))
        if await self._table.get(name) is None:  # not one of older repositories that differ in case
            removed |= await self._artifacts.remove(name.lower() if removed else name)
        if not removed:
            raise NoRepository(name)
        await purge_repositories(self._stores.database)

    async def _exists(self, name: str) -> RepositoryExists:
        row = await self._table.get(name)
        return RepositoryExists(name, name if row is None else row.name)

    def _opened(self, row: RepositoryRow, other: int | None = None) -> Repository:
        """Repository of a row; `other` is the id of the one that another protocol filled, where there is no history."""
        stores = self._stores
        table = HistoryTable(stores.database, stores.room.account, row)
        return Repository(
            row.name,
            time_of(row.created),
            HistoryRecords(table, row.name),
            stores,
            StagedFiles(stores, row.id),
            XorbSessions(stores, row.id),
            GitObjectTable(stores.database, stores.space, row.id if other is None else other),
            None if self._pushed is None else self._pushed(row.name),
        )

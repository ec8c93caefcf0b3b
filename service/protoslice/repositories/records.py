"""Refs and commits of a repository, in the catalogue."""

from __future__ import annotations

from collections.abc import AsyncIterator

from protoslice.catalog.abandoned import purge_commits
from protoslice.catalog.database import SECOND, time_of
from protoslice.catalog.repositories import CommitRow, HistoryTable, Moved, NameRow, RepositoryGone
from protoslice.errors import InvalidInput
from protoslice.repositories.faults import NoCommit, NoRepository, Outrun, RefExists
from protoslice.repositories.model import MAIN, Author, Commit, Kind, Ref

_PAGE = 250


class HistoryRecords:
    """Refs and commits of a history."""

    def __init__(self, table: HistoryTable, repository: str) -> None:
        """`repository` is the name of the repository that has the history."""
        self._table = table
        self.repository = repository

    async def ref(self, kind: Kind, name: str) -> Ref:
        """Return a branch or tag; raise `NoCommit` if it does not exist. The branch `main` always does."""
        row = await self._table.name(kind, name)
        if row is None:
            if (kind, name) == ("heads", MAIN):
                return Ref("heads", MAIN, Commit())
            raise NoCommit(name)
        return _ref(row)

    async def refs(self) -> AsyncIterator[Ref]:
        """Yield all branches and tags by kind and name, without a `main` that has no commit."""
        after = ("", "")
        while rows := await self._table.names(_PAGE, after):
            for row in rows:
                yield _ref(row)
            after = (rows[-1].kind, rows[-1].name)

    async def page(self, limit: int, cursor: str | None) -> tuple[list[Ref], str | None]:
        """Return a page of branches and tags by kind and name, and the cursor of the next page or None."""
        kind, slash, name = (cursor or "/").partition("/")
        if not slash:
            raise InvalidInput("this cursor was not given by this service")
        rows = await self._table.names(limit + 1, (kind, name))
        found = [_ref(row) for row in rows[:limit]]
        return found, found[-1].key if len(rows) > limit else None

    async def create(self, ref: Ref) -> None:
        """Create a branch or tag; raise `RefExists` if there is one of that name."""
        commit = ref.commit
        # A commit that another protocol made has no place in this history until a ref points at it.
        new = commit.place is None and commit.store is not None
        try:
            await self._moved(ref, Commit(store=commit.store, time=commit.time).placed() if new else commit, new=new)
        except Moved:
            raise RefExists(ref.name) from None

    async def move(self, ref: Ref, commit: Commit) -> Commit:
        """Point `ref` at a new commit, and return that; raise `Outrun` if it was changed since it was read."""
        try:
            return (await self._moved(ref, commit, new=True)).commit
        except Moved:
            raise Outrun(ref.name) from None

    async def remove(self, kind: Kind, name: str) -> None:
        """Remove a branch or tag; raise `NoCommit` if it does not exist."""
        if not await self._table.remove(kind, name):
            raise NoCommit(name)

    async def forget(self) -> None:
        """Delete the commits that no branch or tag leads to, and the stores that only they have made."""
        await purge_commits(self._table.database)

    async def by_id(self, commit: str) -> Commit:
        """Return the newest commit of that id; raise `NoCommit` if this history has none."""
        row = await self._table.commit(commit)
        if row is None:
            if commit == Commit().id:
                return Commit()
            raise NoCommit(commit)
        return _commit(row)

    async def ids(self, digits: str, limit: int) -> list[str]:
        """Return at most `limit` ids of commits that begin with `digits`."""
        return await self._table.ids(digits, limit)

    async def at(self, place: str) -> Commit | None:
        """Return the commit at a place, or None if there is none."""
        found, _ = await self.ancestors(place, 1)
        return found[0] if found else None

    async def ancestors(self, place: str, limit: int) -> tuple[list[Commit], str | None]:
        """Return a page of commits from the one at `place` on, along their parents, and the place of the next.

        None at the end.
        """
        found = [_commit(row) for row in await self._table.ancestors(place, limit)]
        return found, found[-1].parent if found else None

    async def _moved(self, ref: Ref, commit: Commit, *, new: bool) -> Ref:
        row = None if commit.place is None else _row(commit, commit.place)
        try:
            return _ref(await self._table.move(ref.kind, ref.name, row, ref.version, new=new))
        except RepositoryGone:
            raise NoRepository(self.repository) from None


def _ref(row: NameRow) -> Ref:
    commit = Commit() if row.commit is None else _commit(row.commit)
    return Ref("tags" if row.kind == "tags" else "heads", row.name, commit, row.version)


def _row(commit: Commit, place: str) -> CommitRow:
    author = commit.author
    return CommitRow(
        id=place,
        digits=commit.id,
        store=commit.store,
        parent=commit.parent,
        number=commit.number,
        title=author.title,
        message=author.message,
        author=author.user,
        at=round(commit.time.timestamp() * SECOND),
    )


def _commit(row: CommitRow) -> Commit:
    return Commit(
        store=row.store,
        number=row.number,
        place=row.id,
        parent=row.parent,
        author=Author(row.title, row.message, row.author),
        time=time_of(row.at),
    )

"""Repository: branches, tags and history over stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from protoslice.catalog.git_objects import GitObjectTable
from protoslice.errors import Conflict, InvalidInput
from protoslice.facts import File
from protoslice.repositories.change import Change, files_of
from protoslice.repositories.faults import NoCommit
from protoslice.repositories.finding import KnownFiles
from protoslice.repositories.model import COMMIT_DIGITS, HEAD, MAIN, Author, Commit, Kind, PushedTags, Ref
from protoslice.repositories.names import check_ref, is_commit, is_short_commit
from protoslice.repositories.records import HistoryRecords
from protoslice.repositories.sessions import XorbSessions
from protoslice.repositories.staging import StagedFiles
from protoslice.repositories.views import ShownCommit, counterpart, viewed_revision
from protoslice.stores import ResultPage, Stores


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository; nothing is kept in memory, so that all replicas see the same."""

    name: str
    created: datetime
    records: HistoryRecords
    stores: Stores
    staged: StagedFiles
    sessions: XorbSessions
    git: GitObjectTable
    pushed: PushedTags | None = None

    async def commit(self, revision: str) -> Commit:
        """The commit that a branch, tag or id names; `NoCommit` when there is none.

        Branches go first, then tags, then those of other protocols.
        """
        kinds, name = ((), revision[:COMMIT_DIGITS]) if is_commit(revision) else _named(revision)
        found = await self._committed(kinds, name)
        if (found is None or found.place is None) and self.pushed is not None:
            found = await self.pushed.find(name) or found
        if found is None and revision == HEAD:
            return await self.commit(MAIN)
        if found is None and (full := await self._full(revision)) is not None:
            return full
        if found is None or (is_commit(revision) and not (found.store or revision).startswith(revision)):
            raise NoCommit(revision)
        return found

    async def shown(self, revision: str) -> ShownCommit:
        """The commit of a revision, or a view by its name, `views/main`, or id; `NoCommit` for neither."""
        if (viewed := viewed_revision(revision)) is not None:
            return ShownCommit(await self.commit(viewed), viewed=True)
        try:
            return ShownCommit(await self.commit(revision))
        except NoCommit:
            if not is_commit(revision) or len(revision) != COMMIT_DIGITS:
                raise
            with suppress(NoCommit):
                return ShownCommit(await self.commit(counterpart(revision)), viewed=True)
            raise

    async def _full(self, revision: str) -> Commit | None:
        """The commit of the first digits of an id, or of an id in git; None when there is none.

        `InvalidInput` if several commits have ids that begin so.
        """
        if is_commit(revision):
            row = (await self.git.objects([revision])).get(revision)
            return None if row is None or row.commit is None else await self.records.at(row.commit)
        if not is_short_commit(revision):
            return None
        ids = await self.records.ids(revision, 2)
        if len(ids) > 1:
            raise InvalidInput(f"The revision {revision!r} is ambiguous: give more digits")
        return await self.records.by_id(ids[0]) if ids else None

    async def _committed(self, kinds: Sequence[Kind], name: str) -> Commit | None:
        """A commit of the history by the first kind of ref that has the name, without kinds by its id."""
        if not kinds:
            with suppress(NoCommit):
                return await self.records.by_id(name)
        for kind in kinds:
            with suppress(NoCommit):
                return (await self.records.ref(kind, name)).commit
        return None

    async def files(self, commit: Commit) -> Mapping[str, File]:
        """Files of a commit by path."""
        return await files_of(self.stores, commit)

    def known(self) -> KnownFiles:
        """Files in the heads of all branches and tags, for one change."""
        return KnownFiles(self.stores, self._heads())

    async def _heads(self) -> AsyncIterator[Commit]:
        yield await self.commit(MAIN)
        async for ref in self.refs():
            yield ref.commit

    async def refs(self) -> AsyncIterator[Ref]:
        """Branches and tags by kind and name, then those of other protocols with names of their own."""
        shown = set[str]()
        async for ref in self.records.refs():
            shown.add(ref.key)
            yield ref
        if self.pushed is not None:
            async for ref in self.pushed.refs():
                if ref.key not in shown:
                    shown.add(ref.key)
                    yield ref
        if f"heads/{MAIN}" not in shown:
            yield Ref("heads", MAIN, Commit())

    def count(self, commit: Commit) -> int:
        """Number of commits that lead to `commit`, itself among them."""
        return commit.number if commit.place is not None else int(commit.store is not None)

    async def history(self, commit: Commit, *, limit: int, cursor: str | None = None) -> ResultPage[Commit]:
        """A page of the commits that lead to `commit`, newest first."""
        place = cursor or commit.place
        if place is None:
            return ResultPage([commit] if commit.store is not None else [])
        return ResultPage(*await self.records.ancestors(place, limit))

    async def change(self, branch: str, *, parent: str | None = None) -> Change:
        """A change of a branch, to be used as an async context manager.

        `parent` is the commit that the branch must point at, or the beginning of its id; else `Outrun`.
        """
        return Change(self.stores, self.records, await self.records.ref("heads", _branch(branch)), parent)

    async def squash(self, branch: str, author: Author) -> Commit:
        """Move a branch to a first commit with the same files, and delete the commits that no ref leads to.

        Raise `Outrun` if the branch is changed meanwhile.
        """
        ref = await self.records.ref("heads", _branch(branch))
        if ref.commit.place is None:
            return ref.commit
        made = await self.records.move(ref, Commit().next(ref.commit.store, author))
        await self.records.forget()
        return made

    async def create(self, kind: Kind, name: str, revision: str = MAIN) -> None:
        """Create a branch or tag at a revision; `RefExists` when there is one of that name."""
        commit = await self.commit(revision)
        await self.records.create(Ref(kind, check_ref(name), commit))

    async def remove(self, kind: Kind, name: str) -> None:
        """Remove a branch or tag, and the commits that no other leads to. `Conflict` for the branch `main`."""
        if (kind, name) == ("heads", MAIN):
            raise Conflict(f"The branch {MAIN!r} cannot be removed, only the whole repository")
        await self.records.remove(kind, check_ref(name))
        await self.records.forget()


def _named(revision: str) -> tuple[tuple[Kind, ...], str]:
    """Kinds of refs that a revision may name, and the name; `NoCommit` for a name that no ref can have."""
    kinds: tuple[Kind, ...] = ("heads", "tags")
    for kind in kinds:
        if revision.startswith(f"refs/{kind}/"):
            kinds, revision = (kind,), revision.removeprefix(f"refs/{kind}/")
    try:
        return kinds, check_ref(revision)
    except InvalidInput:
        raise NoCommit(revision[:COMMIT_DIGITS]) from None


def _branch(revision: str) -> str:
    """Name of a branch, which may be written in full."""
    kinds, name = _named(revision)
    if "heads" not in kinds:
        raise NoCommit(revision)
    return name

"""Records of a history: refs, changed by compare-and-set, and commits, which never change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from protoslice.concurrency.gather import run_concurrently
from protoslice.errors import Conflict, NotFound
from protoslice.repositories.faults import NoCommit, Outrun, RefExists
from protoslice.repositories.model import COMMIT_DIGITS, MAIN, Commit, Kind, Ref
from protoslice.storage import Storage
from protoslice.stores.catalog.named_records import NamedRecords
from protoslice.stores.layout import keys


class HistoryRecords:
    """Refs and commits of a history."""

    def __init__(self, storage: Storage, history: str, repository: str) -> None:
        """`repository` is the name of the repository that has the history."""
        self._storage = storage
        self._history = history
        self._repository = repository
        self._refs = NamedRecords(storage, keys.HISTORIES / history / "refs", "ref")
        self._commits = NamedRecords(storage, keys.HISTORIES / history / "commits", "commit")
        self._ids = NamedRecords(storage, keys.HISTORIES / history / "ids", "commit")

    async def ref(self, kind: Kind, name: str) -> Ref:
        """A branch or tag; `NoCommit` when it does not exist. The branch `main` always does."""
        try:
            data, stat = await self._refs.read(keys.ref(self._history, f"{kind}/{name}"))
        except NotFound:
            if (kind, name) == ("heads", MAIN):
                return Ref("heads", MAIN, Commit())
            raise NoCommit(name) from None
        return Ref.decode(f"{kind}/{name}", data, stat.etag)

    async def refs(self) -> AsyncIterator[Ref]:
        """All branches and tags by kind and name, without a `main` that has no commit."""
        async for data, stat in self._refs.each():
            yield Ref.decode(keys.name_of(stat.key), data, stat.etag)

    async def page(self, limit: int, cursor: str | None) -> tuple[list[Ref], str | None]:
        """A page of branches and tags by kind and name, and the cursor of the next page or None."""
        found, following = await self._refs.page(limit, cursor)
        return [Ref.decode(keys.name_of(stat.key), data, stat.etag) for data, stat in found], following

    async def create(self, ref: Ref) -> None:
        """Create a branch or tag; `RefExists` when there is one of that name."""
        try:
            await self._refs.create(keys.ref(self._history, ref.key), ref.encode(self._repository))
        except Conflict:
            raise RefExists(ref.name) from None

    async def move(self, ref: Ref, commit: Commit) -> None:
        """Point `ref` at another commit; `Outrun` when it has been changed since it was read."""
        key, data = keys.ref(self._history, ref.key), ref.moved(commit).encode(self._repository)
        try:
            if ref.etag is None:
                await self._refs.create(key, data)
            else:
                await self._refs.replace(key, data, ref.etag)
        except Conflict:
            raise Outrun(ref.name) from None

    async def remove(self, kind: Kind, name: str) -> None:
        """Remove a branch or tag; `NoCommit` when it does not exist."""
        try:
            await self._refs.remove(keys.ref(self._history, f"{kind}/{name}"), None)
        except NotFound:
            raise NoCommit(name) from None

    async def add(self, commit: Commit) -> None:
        """Write a commit, durable before any ref points at it."""
        assert commit.place is not None, "only the beginning of a history has no place"
        place = commit.place
        await run_concurrently(
            lambda: self._commits.create(keys.commit(self._history, place), commit.encode()),
            lambda: self._ids.set(keys.commit_id(self._history, commit.id), place.encode()),
        )

    async def by_id(self, commit: str) -> Commit:
        """The newest commit of that id; `NoCommit` when this history has none."""
        try:
            place, _ = await self._ids.read(keys.commit_id(self._history, commit))
            data, _ = await self._commits.read(keys.commit(self._history, place.decode()))
        except NotFound:
            if commit == Commit().id:
                return Commit()
            raise NoCommit(commit) from None
        return Commit.decode(data)

    async def naming(self, stores: Collection[str]) -> list[tuple[str, str]]:
        """Find the refs and commits of `stores`: pairs of a store and a revision that names it.

        A commit is listed by its id where no branch or tag is at it. Costs one lookup for a single store, a listing of
        all ids of commits for several, and a read for each ref if any commit is found.
        """
        by_digits = {store[:COMMIT_DIGITS]: store for store in stores}
        digits = list(by_digits)
        if len(digits) > 1:
            folder = self._storage.iterate(keys.HISTORIES / self._history / "ids")
            digits = [name async for stat in folder if (name := keys.name_of(stat.key)) in by_digits]
        committed = dict.fromkeys([by_digits[each] for each in digits if await self._is_commit(each)])
        if not committed:
            return []
        found = [(ref.commit.store, ref.name) async for ref in self.refs() if ref.commit.store in committed]
        named = {store for store, _ in found}
        return [
            *((store, revision) for store, revision in found if store is not None),
            *((store, store[:COMMIT_DIGITS]) for store in committed if store not in named),
        ]

    async def _is_commit(self, digits: str) -> bool:
        try:
            return (await self.by_id(digits)).store is not None
        except NoCommit:
            return False

    async def ancestors(self, place: str, limit: int) -> tuple[list[Commit], str | None]:
        """A page of commits from the one at `place` on, along their parents, and the place of the next.

        None at the end. One listing finds them, since a place begins with the number of its commit.
        """
        found, wanted = list[Commit](), place
        after = keys.commit(self._history, place.partition("-")[0])
        page = await self._storage.list(keys.HISTORIES / self._history / "commits", after=after, limit=limit)
        for data, _ in await self._commits.listed(page.items):
            commit = Commit.decode(data)
            if commit.place == wanted:
                found.append(commit)
                if commit.parent is None:
                    return found, None
                wanted = commit.parent
        if not found:  # commits of the same number fill the page
            data, _ = await self._commits.read(keys.commit(self._history, wanted))
            commit = Commit.decode(data)
            return [commit], commit.parent
        return found, wanted

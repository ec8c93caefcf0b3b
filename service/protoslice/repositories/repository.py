"""Repositories of a space: names, branches, tags and histories of stores, and files that no commit contains yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from protoslice.catalog.abandoned import purge_commits, purge_repositories
from protoslice.catalog.git_objects import GitObjectTable
from protoslice.catalog.histories import (
    COMMIT_DIGITS,
    HEAD,
    MAIN,
    Author,
    Commit,
    History,
    Kind,
    NoCommit,
    NoRepository,
    Ref,
)
from protoslice.catalog.kept_files import KeptFiles, RepositoryFile
from protoslice.catalog.labels import HUB, OCI
from protoslice.catalog.repositories import RepositoryMoved, RepositoryRow, RepositoryTable
from protoslice.catalog.syntax import check_ref, check_repository, is_commit, is_short_commit
from protoslice.concurrency.gather import map_concurrently
from protoslice.database.transactions import time_of
from protoslice.errors import ChecksumMismatch, Conflict, InvalidInput, NotFound
from protoslice.facts import File
from protoslice.repositories.change import Change, KnownFiles, files_of
from protoslice.repositories.safetensors_revision import ShownCommit, counterpart, viewed_revision
from protoslice.repositories.xet_sessions import XorbSessions
from protoslice.serving import StoredPath
from protoslice.stores import IngestRequest, ResultPage, Stores
from protoslice.uploads import NewUpload, Upload


class StagedFiles:
    """The staged files of a repository by SHA-256; files that are uploads expire like any other upload."""

    def __init__(self, stores: Stores, repository: int) -> None:
        self._repository = repository
        self._stores = stores
        self._kept = KeptFiles(stores.database, stores.space, repository, "staged")

    async def begin(self, sha256: str, size: int, client: str, *, composed: bool = False) -> Upload:
        """Return the upload of a file: a complete upload if it exists, else a new upload.

        A file that is `composed` of objects needs no quota, because their bytes were counted when they arrived.
        """
        found = await self.find(sha256)
        if found is not None and found.length == size:
            return found
        # With a path, the bytes are inspected as they arrive, so that a commit does not read them again.
        digest = bytes.fromhex(sha256)
        new = NewUpload(length=size, path=sha256, partial=True, sha256=digest, client=client, composed=composed)
        return await self._stores.uploads.create(new)

    async def put_part(self, mark: str, size: int, pieces: AsyncIterator[bytes], client: str) -> str:
        """Save a part of `size` bytes and return its id for `join`; parts may arrive in any order and repeatedly."""
        return await self._stores.uploads.put_part(self._marked(mark), pieces, client, size=size)

    async def join(self, sha256: str, size: int, parts: Sequence[tuple[str, str]], client: str) -> None:
        """Stage a file made of parts, each a mark and an id; the bytes are read once but not copied.

        If the bytes have another digest, remove the parts, which cannot be used, and raise `ChecksumMismatch`.
        """

        async def check(part: tuple[str, str]) -> Upload:
            mark, upload_id = part
            found = await self._stores.uploads.renew(upload_id)
            if found.client_metadata != self._marked(mark):
                raise InvalidInput(f"{upload_id[:80]!r} is not a part of this file: send the part again")
            return found

        upload = await self.begin(sha256, size, client, composed=True)
        if not upload.is_whole:
            uploads = await map_concurrently(check, parts)
            extents = [extent for each in uploads for location in each.parts for extent in location.extents()]
            try:
                expires = min(each.expires for each in uploads)
                upload = await self._stores.uploads.compose(upload.id, extents, expires)
            except ChecksumMismatch:
                await map_concurrently(lambda each: self._stores.uploads.remove(each.id), uploads)
                raise
        await self.keep(upload)

    def _marked(self, mark: str) -> str:
        return f"part {self._repository} {mark}"

    async def keep(self, upload: Upload) -> None:
        """Let commits find a complete upload; do nothing for a file that is already kept in a store."""
        assert upload.sha256 is not None, "an upload that is staged was begun with its digest"
        if await self.place(upload.sha256) is None:
            await self._put(upload.sha256, RepositoryFile(size=upload.offset, upload=upload.id))
        await self._stores.uploads.set_aside(upload.id)

    async def find(self, sha256: str) -> Upload | None:
        """Return the complete upload with this SHA-256, or None if it does not exist or has expired."""
        upload_id, _ = await self._read(sha256)
        return await self._whole(upload_id)

    async def place(self, sha256: str) -> StoredPath | None:
        """Return the place of a file that is kept in a store without a commit, or None."""
        _, place = await self._read(sha256)
        return await self._there(place)

    async def settle(self, sha256: str) -> StoredPath | None:
        """Return the place of a file in a store; if needed, make the store from the file's upload.

        Return None when neither exists.
        """
        upload_id, held = await self._read(sha256)
        place = await self._there(held)
        if place is None and (upload := await self._whole(upload_id)) is not None:
            made = await self._stores.uploads.assemble({sha256: [upload.id]}, IngestRequest(), {sha256: sha256})
            place = (made.store.id, sha256)
            await self._put(sha256, RepositoryFile(size=made.store.size, store=made.store.id, path=sha256))
        return place

    async def hold(self, sha256: str, size: int, place: StoredPath) -> None:
        """Keep the file at a place in a store, whether or not commits contain it."""
        store, path = place
        await self._put(sha256, RepositoryFile(size=size, store=store, path=path))

    async def has(self, sha256: str) -> bool:
        """Return True if a complete upload or a kept file has this SHA-256."""
        upload_id, place = await self._read(sha256)
        return await self._there(place) is not None or await self._whole(upload_id) is not None

    async def _whole(self, upload_id: str | None) -> Upload | None:
        """Return an upload, or None if it is incomplete or deleted."""
        with suppress(NotFound):
            upload = None if upload_id is None else await self._stores.uploads.get(upload_id)
            return upload if upload is not None and upload.is_whole else None
        return None

    async def _there(self, place: StoredPath | None) -> StoredPath | None:
        """Return `place`, or None if the store or the file no longer exists."""
        with suppress(NotFound):
            if place is not None and place[1] in await self._stores.files(place[0]):
                return place
        return None

    async def _read(self, sha256: str) -> tuple[str | None, StoredPath | None]:
        """Return the upload of a file, or else its place in a store; both are None for an unknown file."""
        found = await self._kept.get(sha256)
        if found is None:
            return None, None
        place = None if found.store is None else (found.store, found.path or "")
        return found.upload, place

    async def _put(self, sha256: str, file: RepositoryFile) -> None:
        await self._kept.put(sha256, file)


_NO_HISTORY: Final = -1
"""The id in place of a repository without history; real ids are positive."""


class PushedTags(Protocol):
    """The tags that a repository of the same name has in another protocol; their commits have no history."""

    async def find(self, revision: str) -> Commit | None:
        """Return the commit of a tag, of `main`, or of an id with 40 digits; return None if it does not exist."""
        ...

    def refs(self) -> AsyncIterator[Ref]:
        """Return all tags sorted by name, followed by `main` if it exists."""
        ...

    async def exist(self) -> bool:
        """Return True when at least one tag exists."""
        ...


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository; it keeps nothing in memory, so all replicas see the same state."""

    name: str
    created: datetime
    log: History
    stores: Stores
    staged: StagedFiles
    sessions: XorbSessions
    git: GitObjectTable
    pushed: PushedTags | None = None

    async def commit(self, revision: str) -> Commit:
        """Return the commit of a branch, tag or id; raise `NoCommit` when it does not exist.

        Branches take precedence over tags, and tags over the tags of other protocols.
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
        """Return the commit, or the view of a commit, that a revision means; `views/main` and ids of views mean views.

        Raise `NoCommit` when neither exists.
        """
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
        """Return the commit with an abbreviated id or with a git id, or None if it does not exist.

        Raise `InvalidInput` if several ids begin with an abbreviated id.
        """
        if is_commit(revision):
            row = (await self.git.objects([revision])).get(revision)
            return None if row is None or row.commit is None else await self.log.at(row.commit)
        if not is_short_commit(revision):
            return None
        ids = await self.log.ids(revision, 2)
        if len(ids) > 1:
            raise InvalidInput(f"The revision {revision!r} is ambiguous: give more digits")
        return await self.log.by_id(ids[0]) if ids else None

    async def _committed(self, kinds: Sequence[Kind], name: str) -> Commit | None:
        """Return the commit of the first kind of ref that has this name; if `kinds` is empty, `name` is an id."""
        if not kinds:
            with suppress(NoCommit):
                return await self.log.by_id(name)
        for kind in kinds:
            with suppress(NoCommit):
                return (await self.log.ref(kind, name)).commit
        return None

    async def files(self, commit: Commit) -> Mapping[str, File]:
        """Return the files of a commit by path."""
        return await files_of(self.stores, commit)

    def known(self) -> KnownFiles:
        """Return the files in the heads of all branches and tags, for use by one change."""
        return KnownFiles(self.stores, self._heads())

    async def _heads(self) -> AsyncIterator[Commit]:
        yield await self.commit(MAIN)
        async for ref in self.refs():
            yield ref.commit

    async def refs(self) -> AsyncIterator[Ref]:
        """Yield branches and tags sorted by kind and name, then the additional refs of other protocols."""
        shown = set[str]()
        async for ref in self.log.refs():
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
        """Return the number of commits in the history of `commit`, including `commit`."""
        return commit.number if commit.place is not None else int(commit.store is not None)

    async def history(self, commit: Commit, *, limit: int, cursor: str | None = None) -> ResultPage[Commit]:
        """Return a page of the commits up to `commit`, newest first."""
        place = cursor or commit.place
        if place is None:
            return ResultPage([commit] if commit.store is not None else [])
        return ResultPage(*await self.log.ancestors(place, limit))

    async def change(self, branch: str, *, parent: str | None = None) -> Change:
        """Return a change of a branch, which is an async context manager.

        `parent` is the id, or the start of the id, of the commit that the branch must point at. If the branch points at
        another commit, the change raises `BranchMoved`.
        """
        return Change(self.stores, self.log, await self.log.ref("heads", _branch(branch)), parent)

    async def squash(self, branch: str, author: Author) -> Commit:
        """Replace the history of a branch by one commit with the same files, and delete commits that no ref leads to.

        Raise `BranchMoved` if another request has changed the branch.
        """
        ref = await self.log.ref("heads", _branch(branch))
        if ref.commit.place is None:
            return ref.commit
        made = await self.log.move(ref, Commit().next(ref.commit.store, author))
        await purge_commits(self.stores.database)
        return made.commit

    async def create(self, kind: Kind, name: str, revision: str = MAIN) -> None:
        """Create a branch or tag at a revision; raise `RefExists` when the name is taken."""
        commit = await self.commit(revision)
        await self.log.create(Ref(kind, check_ref(name), commit))

    async def remove(self, kind: Kind, name: str) -> None:
        """Remove a branch or tag and the commits that no other ref leads to. Raise `Conflict` for the branch `main`."""
        if (kind, name) == ("heads", MAIN):
            raise Conflict(f"The branch {MAIN!r} cannot be removed, only the whole repository")
        await self.log.remove(kind, check_ref(name))
        await purge_commits(self.stores.database)


class Repositories:
    """The repositories over `stores`."""

    def __init__(self, stores: Stores, *, pushed: Callable[[str], PushedTags] | None = None) -> None:
        """Set up the repositories; `pushed` returns the tags of a repository, by its name, in another protocol."""
        self._stores = stores
        self._pushed = pushed
        self._table = RepositoryTable(stores.database, stores.quotas.usage, HUB)
        self._artifacts = RepositoryTable(stores.database, stores.quotas.usage, OCI)

    async def create(self, name: str) -> Repository:
        """Create a repository; raise `RepositoryExists` if a repository has this name, ignoring case."""
        return self._opened(await self._table.create(check_repository(name)))

    async def get(self, name: str) -> Repository:
        """Return the repository called `name`, in order to change it; raise `NoRepository` if it does not exist.

        Raise `RepositoryMoved` if a repository had this name earlier, or has it in another case.
        """
        found = await self.current(name)
        if found.name != name:
            raise RepositoryMoved(name, found.name)
        return found

    async def current(self, name: str) -> Repository:
        """Return the repository called `name`, ignoring case, or else the last repository that had this name.

        Raise `NoRepository` if there is neither.
        """
        row = await self._table.get(check_repository(name))
        if row is None:
            raise NoRepository(name)
        return self._opened(row)

    async def find(self, name: str, *, moved: bool = False) -> Repository:
        """Return the repository called `name`, in order to read it, even if it exists only in another protocol.

        Raise `NoRepository` if it does not exist. If `name` is a former name or differs in case, raise
        `RepositoryMoved`; if `moved` is True, return the repository instead.
        """
        try:
            return await self.get(name)
        except NoRepository as error:
            current = error.current if isinstance(error, RepositoryMoved) else None
            key = name.lower()
            if current is None or current.lower() != key:  # artifacts with this name precede a former repository
                other = await self._artifacts.get(key)
                if other is not None and self._pushed is not None and await self._pushed(key).exist():
                    if name != key and not moved:
                        raise RepositoryMoved(name, key) from None
                    return self._opened(RepositoryRow(_NO_HISTORY, key, 0), other.id)
            if current is None or not moved:
                raise
            return await self.get(current)

    async def names(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[str], bool]:
        """Return a page of the names that begin with `prefix`, in order, and True if more names follow."""
        return await self._table.names(prefix, limit=limit, after=after)

    async def rename(self, name: str, new: str) -> None:
        """Rename a repository; raise `NoRepository` if it does not exist, and `RepositoryExists` if `new` is taken."""
        await self._table.rename(check_repository(name), check_repository(new))

    async def remove(self, name: str) -> None:
        """Remove a repository with its history and artifacts, and the stores that only these created.

        Stores that something else names are kept.
        """
        removed = await self._table.remove(check_repository(name))
        if await self._table.get(name) is None:  # else an older repository, whose name differs in case, is left
            removed |= await self._artifacts.remove(name.lower() if removed else name)
        if not removed:
            raise NoRepository(name)
        await purge_repositories(self._stores.database)

    def _opened(self, row: RepositoryRow, other: int | None = None) -> Repository:
        """Return the repository of a row; without history, `other` is the repository's id in another protocol."""
        stores = self._stores
        return Repository(
            row.name,
            time_of(row.created),
            History(stores.database, stores.quotas.usage, row.id, row.name),
            stores,
            StagedFiles(stores, row.id),
            XorbSessions(stores, row.id),
            GitObjectTable(stores.database, stores.space, row.id if other is None else other),
            None if self._pushed is None else self._pushed(row.name),
        )


def _named(revision: str) -> tuple[tuple[Kind, ...], str]:
    """Return the kinds of refs that a revision may mean, and the name.

    Raise `NoCommit` for an invalid ref name.
    """
    kinds: tuple[Kind, ...] = ("heads", "tags")
    for kind in kinds:
        if revision.startswith(f"refs/{kind}/"):
            kinds, revision = (kind,), revision.removeprefix(f"refs/{kind}/")
    try:
        return kinds, check_ref(revision)
    except InvalidInput:
        raise NoCommit(revision[:COMMIT_DIGITS]) from None


def _branch(revision: str) -> str:
    """Return the name of a branch, which may be written as `refs/heads/…`."""
    kinds, name = _named(revision)
    if "heads" not in kinds:
        raise NoCommit(revision)
    return name


_PAGE: Final = 50
_MOST_FILES: Final = 200_000
"""Approximate limit of files, over all commits, that one call compares."""
_FILE_BYTES: Final = 200


async def last_commits(repository: Repository, commit: Commit, paths: Collection[str]) -> dict[str, Commit]:
    """Return the commits that last changed `paths`, searching backwards from `commit`; old changes may be left out."""
    found, looked = dict[str, Commit](), 0
    newer, now = commit, await _contents(repository, commit, paths)
    left = set(now)
    cursor: str | None = None
    while left and looked < _MOST_FILES:
        page = await repository.history(commit, limit=_PAGE, cursor=cursor)
        for older in page.items:
            if older.place == newer.place:
                continue
            try:
                files = await files_of(repository.stores, older)
            except NotFound:  # its store was removed, so its files are unknown
                return found
            before = await _signed(repository, files, left)
            changed = {path for path in left if before.get(path) != now[path]}
            found |= dict.fromkeys(changed, newer)
            left -= changed
            newer, looked = older, looked + len(files)
            if not left or looked > _MOST_FILES:
                return found
        cursor = page.next
        if cursor is None:
            found |= dict.fromkeys(left, newer)
            break
    return found


async def _contents(repository: Repository, commit: Commit, paths: Collection[str]) -> Mapping[str, int]:
    return await _signed(repository, await files_of(repository.stores, commit), set(paths))


async def _signed(repository: Repository, files: Mapping[str, File], paths: set[str]) -> Mapping[str, int]:
    """Return a number for the content of each existing path; the number of a folder changes with any file in it."""

    def signed() -> dict[str, int]:
        found = dict[str, int]()
        for path, file in files.items():
            number, above = hash((path, file.sha256)), path
            while above:
                if above in paths:
                    found[above] = found.get(above, 0) + number
                above = above.rpartition("/")[0]
        return found

    return await repository.stores.worker.run_if_large(_FILE_BYTES * len(files), signed)

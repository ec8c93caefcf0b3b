"""Changes of branches: files arrive as streams, and the branch moves last, when the new store is durable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from protoslice.catalog.histories import Author, BranchMoved, Commit, History, Ref
from protoslice.errors import InvalidInput, NotFound, StorageUnavailable
from protoslice.facts import File
from protoslice.ingest import Ingest
from protoslice.serving import StoredPath
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Upload

_TRIES: Final = 30
"""Largest number of repetitions of a change; each failed try means that another process has committed a change."""


class NoFile(NotFound):
    """The error for a path that is neither a file nor a folder in a commit."""

    def __init__(self, path: str, commit: str | None = None) -> None:
        super().__init__(f"The commit has no file or folder {path!r}")
        self.commit = commit


async def files_of(stores: Stores, commit: Commit) -> Mapping[str, File]:
    """Return the files of a commit by path."""
    if commit.store is None:
        return {}
    manifest = await stores.manifests.get(commit.store)
    return {file.path: file for file in manifest.files if file.sha256 is not None}


class KnownFiles:
    """The files of commits by SHA-256.

    A commit is read at most once, and only if a digest was not found in the commits that were read before. Files of
    other repositories are not found.
    """

    def __init__(self, stores: Stores, commits: AsyncIterator[Commit]) -> None:
        self._stores = stores
        self._commits = commits
        self._seen: set[str] = set()
        self._places: dict[str, StoredPath] = {}

    async def find(self, sha256: str) -> StoredPath | None:
        """Return the place of a file with this hexadecimal SHA-256, or None if no commit has it."""
        while sha256 not in self._places:
            commit = await anext(self._commits, None)
            if commit is None:
                return None
            if commit.store is not None and commit.store not in self._seen:
                self._seen.add(commit.store)
                await self._read(commit.store)
        return self._places[sha256]

    async def _read(self, store: str) -> None:
        for path, ref in (await self._stores.files(store)).items():
            self._places.setdefault(ref.sha256, (store, path))


class Change:
    """A change of a branch, used as a context manager; without a commit, the change leaves only garbage.

    If no parent is expected and another change is committed first, this change is repeated on the new head. That is
    possible because its edits name paths, and because its new files are in the store that the first try made.
    """

    def __init__(self, stores: Stores, history: History, ref: Ref, parent: str | None) -> None:
        self._stores = stores
        self._history = history
        self._ref = ref
        self._parent = parent
        self._old: Mapping[str, File] = {}
        self._new: dict[str, StoredPath | None] = {}
        """The places of new files by path; None for a file in the open ingest."""
        self._gone: set[str] = set()
        self._ingest: Ingest | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._parent is not None and not self._ref.commit.id.startswith(self._parent):
            raise BranchMoved(self._ref.name)
        self._old = await files_of(self._stores, self._ref.commit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def put(self, path: str, pieces: AsyncIterator[bytes]) -> File:
        """Write a new file, or a new version of an existing file."""
        self._begin(path)
        sink = await (await self._opened()).file(path)
        async for piece in pieces:
            await sink.write(piece)
        self._new[path] = None
        return await sink.close()

    def copy(self, path: str, place: StoredPath) -> None:
        """Make the file at `path` a copy of the file at `place` in an existing store."""
        self._begin(path)
        self._new[path] = place

    async def take(self, path: str, upload: Upload) -> None:
        """Make a staged upload the file at `path`, without copying its bytes."""
        self._begin(path)
        assert upload.sha256 is not None, "an upload that is staged was begun with its digest"
        await self._stores.uploads.fill(await self._opened(), path, [upload.id], upload.sha256)
        self._new[path] = None

    def delete(self, path: str) -> None:
        """Delete a file; raise `NoFile` when it does not exist."""
        if path not in self._old or path in self._gone:
            raise NoFile(path)
        self._begin(path)
        self._gone.add(path)

    def delete_folder(self, path: str) -> None:
        """Delete all files below a folder; raise `NoFile` when it has no files."""
        found = [each for each in self._old if each.startswith(f"{path.rstrip('/')}/") and each not in self._gone]
        if not found:
            raise NoFile(path)
        for each in found:
            self.delete(each)

    async def commit(self, author: Author) -> Commit:
        """Move the branch to a new commit with the changed files; return the current commit when nothing changes.

        Raise `BranchMoved` when a parent is expected and the branch no longer points at it.
        """
        # The lock avoids repetitions: of many changes on one head, each commit would make all others start again.
        async with self._stores.turn(f"{self._history.name}@{self._ref.name}"):
            for _ in range(_TRIES):
                head = self._ref.commit
                store = await self._store()
                if store == head.store:
                    return head
                try:
                    return (await self._history.move(self._ref, head.next(store, author))).commit
                except BranchMoved:
                    if self._parent is not None:
                        raise
                    await self._follow(store)
        raise StorageUnavailable(f"The branch {self._ref.name!r} is being changed by other requests: try again")

    async def _store(self) -> str | None:
        """Return the id of a store with the changed files, or None when no file is left."""
        kept = {path: place for path, place in self._new.items() if place is not None}
        if (store := self._ref.commit.store) is not None:
            kept |= {path: (store, path) for path in self._old if path not in self._gone and path not in self._new}
        if not self._new and not kept:
            return None
        ingest = await self._opened()
        await ingest.take(await self._stores.file_refs(kept))
        return (await ingest.commit()).store.id

    async def _follow(self, store: str | None) -> None:
        """Load the branch's current state, and take the new files from `store`, which has all of them."""
        await self._stack.aclose()
        self._ingest = None
        if store is not None:
            self._new = {path: (store, path) for path in self._new}
        self._ref = await self._history.ref(self._ref.kind, self._ref.name)
        self._old = await files_of(self._stores, self._ref.commit)

    async def _opened(self) -> Ingest:
        if self._ingest is None:
            self._ingest = await self._stack.enter_async_context(
                await self._stores.ingest(IngestRequest(of_commit=True))
            )
        return self._ingest

    def _begin(self, path: str) -> None:
        if path in self._new or path in self._gone:
            raise InvalidInput(f"The commit changes {path!r} twice: list each path once")

"""Histories of repositories in git: the ids of commits, and objects by id.

The ids depend only on commits and their files, so all replicas compute the same ids. They are computed when a client
first reads the refs. They are saved together with the objects that a commit adds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from protoslice.catalog.git_objects import GitCommitRow, GitObjectRow
from protoslice.catalog.histories import Commit, Ref
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, NotFound, ProtosliceError, StorageUnavailable, Unsupported
from protoslice.facts import File
from protoslice.repositories.change import files_of
from protoslice.repositories.git_format import (
    PLAIN_BYTES,
    GitTrees,
    blob_id,
    commit_of,
    has_more_folders,
    id_of,
    is_plain,
    pointer_of,
    trees_of,
    with_header,
)
from protoslice.repositories.repository import Repository
from protoslice.serving import StoredPath

_PAGE: Final = 250
_ROWS: Final = 2000
"""Approximate number of rows that one transaction writes."""
_INLINE: Final = 16 << 10
"""Largest size in bytes of an object that is saved in a row; a larger tree is computed again when needed."""
_SECONDS: Final = 20.0
"""Seconds that a request may spend on computing ids before it asks the client to try again."""
_BYTES_OF_FILE: Final = 400
"""The work for each file when trees are computed, as a number of bytes for `run_if_large`."""
_BYTES_OF_OBJECT: Final = 100
"""The work per object, in the same unit."""
_PLAIN: Final = "plain "
_FOLDERS: Final = 50_000
"""Largest number of folders in one commit: each becomes an object, and even a small commit can name very many."""


class GitHistory:
    """The history of one repository in git."""

    def __init__(self, repository: Repository) -> None:
        self.name = repository.name
        self._repository = repository
        self._stores = repository.stores
        self._table = repository.git

    async def refs(self) -> list[tuple[str, str]]:
        """Return branches and tags with the ids of their commits, sorted by name, without names that git refuses.

        Raise `StorageUnavailable` if computing the ids takes too long; the next call continues the work. Raise
        `Unsupported` if a commit has too many folders.
        """
        if await self._table.is_stale():
            await self._table.clear()
        found, deadline = dict[str, str](), asyncio.get_running_loop().time() + _SECONDS
        refs = [ref async for ref in _nameable(self._repository.refs())]
        known = await self._table.commits({_key(ref.commit) for ref in refs})
        for ref in refs:
            id = known.get(_key(ref.commit))
            if id is None:
                id = await self._id(ref.commit, deadline)
            if id:
                found[f"refs/{ref.key}"] = id
        return sorted(found.items())

    async def object(self, id: str) -> bytes:
        """Return an object; raise `NotFound` if no commit of the refs that were read contains this id."""
        row = (await self._table.objects([id])).get(id)
        if row is None:
            raise NotFound(f"The repository has no git object {id}")
        if row.data is not None:
            return row.data
        assert row.store is not None, "an object without data comes from a store"
        if row.path is not None:
            return with_header(b"blob", await (await self._stores.view(row.store)).file(row.path).read(PLAIN_BYTES))
        return (await self._trees(row.store)).made[id]

    async def places(self, files: Iterable[tuple[str, int]]) -> dict[tuple[str, int], StoredPath]:
        """Return the places of git-lfs files of all commits, by SHA-256 and size; leave out unknown files.

        A plain file whose text looks like a pointer does not count.
        """
        ids = {blob_id(pointer_of(*file)): file for file in files}
        rows = (await self._table.objects(ids)).values()
        pointers = [row for row in rows if row.data is not None]
        return {
            ids[row.id]: (row.store, row.path) for row in pointers if row.store is not None and row.path is not None
        }

    async def _id(self, commit: Commit, deadline: float) -> str:
        """Return the id of a commit after computing the ids of its ancestors.

        Return "" for a branch without commits.
        """
        line, parent = await self._unknown(commit)
        if not line:
            return "" if parent is None else parent[1]
        seen, trees, store = set[str](), None, ""
        commits, objects = list[GitCommitRow](), dict[str, GitObjectRow]()
        after = parent
        for each in line:
            before = "" if after is None else after[1]
            if trees is None or store != each.store:
                trees, store = await self._found_trees(each), each.store or ""
            id = before
            if trees is not None:
                weight = _BYTES_OF_OBJECT * (len(trees.made) + len(trees.files))
                await self._stores.worker.run_if_large(weight, partial(_add, objects, trees, each.store, seen))
                made = commit_of(each, trees.root, before)
                id = id_of(made)
                objects[id] = GitObjectRow(id, made, None, each.place)
            after = (_key(each), id)
            commits.append(GitCommitRow(*after, each.store, is_gone=trees is None))
            is_late = asyncio.get_running_loop().time() > deadline
            if len(objects) + len(commits) > _ROWS or is_late or each is line[-1]:
                await self._put(commits, objects, parent)
                commits, objects, parent = [], {}, after
            if is_late and each is not line[-1]:
                raise StorageUnavailable("The history is being prepared for git: try again")
        assert after is not None, "the line has commits"
        return after[1]

    async def _put(
        self, commits: list[GitCommitRow], objects: Mapping[str, GitObjectRow], parent: tuple[str, str] | None
    ) -> None:
        try:
            await self._table.put(commits, objects.values(), parent)
        except Conflict:
            raise StorageUnavailable("The history is being prepared by another request: try again") from None

    async def _unknown(self, commit: Commit) -> tuple[list[Commit], tuple[str, str] | None]:
        """Return a commit's ancestors that have no id yet, oldest first, and key and id of the commit before them."""
        if commit.place is None and commit.store is None:
            return [], None
        known = await self._table.commits([_key(commit)])
        if known:
            return [], (_key(commit), known[_key(commit)])
        if commit.place is None:
            return [commit], None
        line, place = list[Commit](), commit.place
        while place:
            page, following = await self._repository.log.ancestors(place, _PAGE)
            known = await self._table.commits([_key(each) for each in page])
            for each in page:
                if _key(each) in known:
                    return line[::-1], (_key(each), known[_key(each)])
                line.append(each)
            place = following or ""
        return line[::-1], None

    async def _found_trees(self, commit: Commit) -> GitTrees | None:
        """Return the trees of a commit, or None if its store was removed."""
        try:
            return trees_of({}, {}) if commit.store is None else await self._trees(commit.store)
        except NotFound:
            return None

    async def _trees(self, store: str) -> GitTrees:
        files = await files_of(self._stores, Commit(store=store))
        weight = sum(_BYTES_OF_FILE + _BYTES_OF_OBJECT * path.count("/") for path in files)
        if await self._stores.worker.run_if_large(weight, lambda: has_more_folders(files, _FOLDERS)):
            raise Unsupported(
                f"A commit has more than {_FOLDERS} folders, which is too many for git: use `hf download` instead"
            )
        blobs = await plain_ids(self._repository, store, files)
        return await self._stores.worker.run_if_large(weight, lambda: trees_of(files, blobs))


async def plain_ids(repository: Repository, store: str | None, files: Mapping[str, File]) -> Mapping[str, str]:
    """Return the git ids of a store's plain files by SHA-256; files without a saved id are read."""
    plain = {file.sha256: path for path, file in files.items() if file.sha256 and is_plain(path, file.size)}
    if store is None or not plain:
        return {}
    known = await repository.git.blobs(plain)
    unknown = [sha256 for sha256 in plain if sha256 not in known]
    if not unknown:
        return known
    opened = await repository.stores.view(store)

    async def read(sha256: str) -> str:
        return blob_id(await opened.file(plain[sha256]).read(PLAIN_BYTES))

    made = dict(zip(unknown, await map_concurrently(read, unknown), strict=True))
    with suppress(ProtosliceError):  # if saving fails, the files are just read again next time
        await repository.git.put_blobs(made)
    return {**known, **made}


def _add(objects: dict[str, GitObjectRow], trees: GitTrees, store: str | None, seen: set[str]) -> None:
    """Add rows for the objects of trees that were not `seen`.

    The row of a pointer has data, and the row of a plain file has none.
    """
    plain = {_PLAIN + id: path for id, path in trees.files.items() if id not in trees.made}
    for id, made in trees.made.items():
        if id not in seen:
            data = made if len(made) <= _INLINE or id in trees.files else None
            objects[id] = GitObjectRow(id, data, store, trees.files.get(id))
    for mark, path in plain.items():
        id = mark.removeprefix(_PLAIN)
        if mark not in seen and id not in objects:
            objects[id] = GitObjectRow(id, None, store, path)
    seen.clear()
    seen |= trees.made.keys() | plain.keys()


def _key(commit: Commit) -> str:
    """Return the name of a commit's row; a commit of another protocol is named after its store."""
    return commit.place or f"store {commit.store}"


async def _nameable(refs: AsyncIterator[Ref]) -> AsyncIterator[Ref]:
    """Yield the refs that git can store as files; of `a` and `a/b`, only the first is yielded."""
    seen, above = set[str](), set[str]()
    async for ref in refs:
        segments = ref.key.split("/")
        folders = {"/".join(segments[:end]) for end in range(1, len(segments))}
        refused = ".." in ref.key or any(each.endswith((".", ".lock")) for each in segments)
        if not refused and not folders & seen and ref.key not in above:
            seen.add(ref.key)
            above |= folders
            yield ref

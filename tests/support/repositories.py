"""Repositories in memory, and changes of them in one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from tests.support.stores import opened, read

from protoslice.repositories import MAIN, Author, Commit, Repositories, Repository
from protoslice.storage import MemoryStorage, Storage

T = TypeVar("T")


def in_repositories(work: Callable[[Repositories, Storage], Awaitable[T]]) -> T:
    """The result of `work` on new repositories in memory."""

    async def run() -> T:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            return await work(Repositories(stores), storage)

    return asyncio.run(run())


async def change(
    repository: Repository,
    files: Mapping[str, bytes | None],
    *,
    branch: str = MAIN,
    parent: str | None = None,
    title: str = "",
) -> Commit:
    """The commit of a change: None deletes a file, or a folder by a path that ends in a slash."""
    async with await repository.change(branch, parent=parent) as edits:
        for path, data in files.items():
            if data is not None:
                await edits.put(path, _pieces(data))
            elif path.endswith("/"):
                edits.delete_folder(path)
            else:
                edits.delete(path)
        return await edits.commit(Author(title))


async def contents(repository: Repository, revision: str = MAIN) -> dict[str, bytes]:
    """The files of a revision with their bytes."""
    commit = await repository.commit(revision)
    if commit.store is None:
        return {}
    store = await repository.stores.view(commit.store)
    return {path: await read(store.file(path)) for path in await repository.files(commit)}


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 300_000):
        yield data[at : at + 300_000]

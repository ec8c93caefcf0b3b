"""Changes of repositories in one call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from tests.support.stores import read

from protoslice.repositories import MAIN, Author, Commit, Repository


async def change(
    repository: Repository,
    files: Mapping[str, bytes | None],
    *,
    branch: str = MAIN,
    parent: str | None = None,
    title: str = "",
) -> Commit:
    """Commit a change. None deletes a file, or a folder if the path ends in a slash."""
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
    """Return the files of a revision with their bytes."""
    commit = await repository.commit(revision)
    if commit.store is None:
        return {}
    store = await repository.stores.view(commit.store)
    return {path: await read(store.file(path)) for path in await repository.files(commit)}


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 300_000):
        yield data[at : at + 300_000]

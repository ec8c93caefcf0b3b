"""Commits that last changed files and folders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from protoslice.catalog.histories import Commit
from protoslice.errors import NotFound
from protoslice.facts import File
from protoslice.repositories.change import files_of
from protoslice.repositories.repository import Repository

_PAGE: Final = 50
_MOST_FILES: Final = 200_000
"""Files of all commits that one call compares, about."""
_FILE_BYTES: Final = 200


async def last_commits(repository: Repository, commit: Commit, paths: Collection[str]) -> dict[str, Commit]:
    """Commits that last changed `paths`, from `commit` backwards; changes a long time ago are left out."""
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
            except NotFound:  # its store was removed: what it held is unknown
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
    """A number for the content of each path that exists: that of a folder changes with any file in it."""

    def signed() -> dict[str, int]:
        found = dict[str, int]()
        for path, file in files.items():
            number, above = hash((path, file.sha256)), path
            while above:
                if above in paths:
                    found[above] = found.get(above, 0) + number
                above = above.rpartition("/")[0]
        return found

    return await repository.stores.worker.sized(_FILE_BYTES * len(files), signed)

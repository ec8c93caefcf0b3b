"""Search for files of a repository by digest. Digests of other repositories are not known here."""

from __future__ import annotations

from collections.abc import AsyncIterator

from protoslice.repositories.model import Commit
from protoslice.stores import StoredPath, Stores


class KnownFiles:
    """Files of commits by SHA-256; a commit is read when a digest is in none before it, and once."""

    def __init__(self, stores: Stores, commits: AsyncIterator[Commit]) -> None:
        self._stores = stores
        self._commits = commits
        self._seen: set[str] = set()
        self._places: dict[str, StoredPath] = {}

    async def find(self, sha256: str) -> StoredPath | None:
        """Place of a file of this SHA-256, in hex; None when none has it."""
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

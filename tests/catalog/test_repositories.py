"""Repositories by name, and the files of repositories that are in no commit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.rows import ACCOUNT, put_store

from protoslice.catalog.kept_files import KeptFiles, RepositoryFile, purge_kept_files
from protoslice.catalog.labels import HUB, OCI
from protoslice.catalog.repositories import RepositoryExists, RepositoryTable
from protoslice.catalog.spaces import Usage
from protoslice.database import Database
from protoslice.errors import Conflict


async def test_names_of_repositories_are_listed_by_prefix(database: Database) -> None:
    table = RepositoryTable(database, ACCOUNT, HUB)
    for name in ("b", "a/b", "a", "a-b", "A-", "ab"):
        await table.create(name)
    await RepositoryTable(database, ACCOUNT, OCI).create("aa")
    await RepositoryTable(database, Usage("elsewhere"), HUB).create("aa")
    assert await table.names("", limit=10, after=None) == (["A-", "a", "a-b", "a/b", "ab", "b"], False)
    assert await table.names("a", limit=2, after="a") == (["a-b", "a/b"], True)
    assert await table.names("a", limit=9, after="a/b") == (["ab"], False)
    with pytest.raises(RepositoryExists):
        await table.create("a")
    assert await table.remove("a")
    assert not await table.remove("a")
    assert await table.get("a") is None


async def test_kept_files_are_replaced_and_go_with_their_uploads(database: Database) -> None:
    row = await RepositoryTable(database, ACCOUNT, HUB).create("m")
    await put_store(database, "s")
    with pytest.raises(Conflict, match="removed in the meantime"):
        await KeptFiles(database, "team", row.id, "staged").put("a", RepositoryFile(size=3, store="none", path="p"))
    kept = KeptFiles(database, "team", row.id, "staged")
    first = await kept.put("a", RepositoryFile(size=3, upload="u"))
    assert await kept.get("a") == first
    second = await kept.put("a", RepositoryFile(size=1 << 40, store="s", path="p"))
    assert second.version != first.version
    assert await kept.get("a") == second == replace(second, upload=None)
    await kept.put("b", RepositoryFile(size=3, upload="u"))
    await purge_kept_files(database, 3600)
    assert await kept.get("b") is not None
    await purge_kept_files(database, -1)
    assert await kept.get("b") is None
    assert await kept.get("a") == second

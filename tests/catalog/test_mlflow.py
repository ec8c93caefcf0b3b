"""Artifacts of MLflow: listed level by level, replaced by several writers, noted until a store is made of them."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.rows import ACCOUNT, held, put_store

from protoslice.catalog import mlflow
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import ChangedFolders, MlflowTable, NoArtifact, folder_version
from protoslice.catalog.repositories import NamedStore, NamesOfStores
from protoslice.catalog.spaces import Usage
from protoslice.database import Database
from protoslice.errors import Conflict

FILE = RepositoryFile(size=3, data=b"abc")


async def _folders(table: MlflowTable, below: str, limit: int, after: str) -> list[str]:
    return [folder.path for folder in (await table.folders(below, limit=limit, after=after))[0]]


async def test_entries_show_one_level_whatever_the_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    table = MlflowTable(database, ACCOUNT)
    for path in ("a/b/1", "a/b/2", "a/b/3", "a/b.txt", "a/bb", "a/c/1", "a/c/2", "a/d", "x"):
        await table.put(path, FILE)
    await MlflowTable(database, Usage("elsewhere")).put("a/other", FILE)
    for page in (1, 2, 3, 100):
        monkeypatch.setattr(mlflow, "_PAGE", page)
        entries = await table.entries("a")
        assert entries == [("b", None), ("c", None), ("b.txt", 3), ("bb", 3), ("d", 3)], page
        assert await table.entries("") == [("a", None), ("x", 3)]
        assert await table.entries("a/d") == await table.entries("nothing") == []
        assert list((await table.files("a/b"))[0]) == ["1", "2", "3"]


async def test_bytes_in_rows_are_counted_whoever_writes(database: Database, replica: Database) -> None:
    tables = [MlflowTable(database, ACCOUNT) for database in (database, replica)]
    writes = [tables[n % 2].put("r/a", RepositoryFile(size=n, data=b"x" * n)) for n in range(1, 17)]
    await asyncio.gather(*writes)
    (file,) = (await tables[0].files("r"))[0].values()
    assert await held(database) == (file.size, 0, 0)
    await put_store(database, "s")
    await tables[0].put("r/a", RepositoryFile(size=9, store="s", path="p"))
    assert (await held(database))[0] == 0
    await tables[0].remove("r")
    assert (await held(database))[0] == 0


async def test_bytes_of_files_in_no_folder_are_counted_whoever_writes(database: Database, replica: Database) -> None:
    tables = [MlflowTable(database, ACCOUNT) for database in (database, replica)]
    for round in range(20):
        sizes = range(round, round + 6)
        await asyncio.gather(*(tables[n % 2].put(f"f{round}", RepositoryFile(size=n, data=b"x" * n)) for n in sizes))
    files = (await tables[0].files(""))[0]
    assert len(files) == 20
    assert await held(database) == (sum(file.size for file in files.values()), 0, 0)


@pytest.mark.parametrize(("top", "name"), [("", "artifacts"), ("run/artifacts/", "x"), ("run/", "x")])
async def test_of_a_file_and_what_would_lie_in_it_one_is_written(
    database: Database, replica: Database, top: str, name: str
) -> None:
    tables = [MlflowTable(database, ACCOUNT) for database in (database, replica)]
    for number in range(20):
        paths = [f"{top}{number}/{name}", f"{top}{number}/{name}/b/c"]
        done = await asyncio.gather(
            *(table.put(path, FILE) for table, path in zip(tables, paths, strict=True)),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in done) == ["Conflict", "NoneType"]
    assert len((await tables[0].files(""))[0]) == 20


async def test_folder_is_removed_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "_REMOVED", 2)
    table = MlflowTable(database, ACCOUNT)
    for path in ("r/a/1", "r/a/2", "r/b/1", "r/b/2", "r/c", "s/1", "t"):
        await table.put(path, FILE)
    await table.remove("r")
    assert await _folders(table, "", 9, "") == ["s"]
    await table.remove("t")
    assert (await held(database))[0] == 3


async def test_file_of_a_store_that_was_removed_is_refused(database: Database) -> None:
    table = MlflowTable(database, ACCOUNT)
    with pytest.raises(Conflict, match="removed in the meantime"):
        await table.put("r/a", RepositoryFile(size=1, store="none", path="p"))
    assert await table.entries("r") == []


async def test_folders_are_noted_until_they_are_settled(database: Database, replica: Database) -> None:
    table, changed = MlflowTable(database, ACCOUNT), ChangedFolders(replica)
    await table.put("r/a", FILE)
    (seen,) = await changed.quiet(0, 9)
    assert await changed.quiet(3600, 9) == []
    await table.put("r/b", FILE)
    await changed.settle(seen)
    (again,) = await changed.quiet(0, 9)
    assert again.changed > seen.changed, "a change that came meanwhile is not forgotten"
    await changed.settle(again)
    assert await changed.quiet(0, 9) == []
    await table.remove("r/a")
    assert len(await changed.quiet(0, 9)) == 1
    assert await _folders(table, "", 9, "") == ["r"]
    await table.remove("r")
    assert await _folders(table, "", 9, "") == []
    assert await changed.quiet(0, 9) == []
    with pytest.raises(NoArtifact):
        await table.remove("r")


async def test_folders_are_listed_below_another(database: Database) -> None:
    table = MlflowTable(database, ACCOUNT)
    for folder in ("1", "1/r", "1/s", "10", "2"):
        await table.put(f"{folder}/x", FILE)
    assert await _folders(table, "1", 2, "") == ["1", "1/r"]
    assert await _folders(table, "1", 9, "1/r") == ["1/s"]
    assert await _folders(table, "", 9, "1/s") == ["10", "2"]


async def test_stores_are_found_by_files_and_seals(database: Database) -> None:
    table = MlflowTable(database, ACCOUNT)
    for store in ("s1", "s2", "t0", "t1", "t2"):
        await put_store(database, store)
    await table.put("r/a/x", RepositoryFile(size=1, store="s1", path="x"))
    await table.put("r/a/y", RepositoryFile(size=1, store="s1", path="x"))
    await table.put("top", RepositoryFile(size=1, store="s2", path="top"))
    found = await NamesOfStores(database, "team").naming(["s1", "s2", "s3"], 9)
    held = [NamedStore("s1", "mlflow", "", "r/a", "file"), NamedStore("s2", "mlflow", "", "top", "file")]
    assert sorted(found, key=lambda each: each.store) == held
    assert await table.last_frozen("r") is None
    late = folder_version(await table.versions("r"))
    await table.put("r/a/x", FILE)
    version = folder_version(await table.versions("r"))
    for store in ("t1", "t2"):
        await table.freeze("r", version, store)
        assert await table.last_frozen("r") == (store, version)
    await table.freeze("r", late, "t0")
    assert await table.last_frozen("r") == ("t2", version), "a slow replica replaced what is known of a later version"

"""Artifacts of MLflow: listed level by level, replaced by several writers, noted until a store is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.rows import ACCOUNT, held, put_store

from protoslice.catalog import Database, drafts, open_database
from protoslice.catalog.drafts import ChangedFolders, DraftTable, folder_version
from protoslice.catalog.kept_files import KeptFile
from protoslice.catalog.repositories import NamedStore, NamesOfStores
from protoslice.catalog.spaces import Account
from protoslice.drafts.records import artifact_folder
from protoslice.errors import Conflict

Work = Callable[[Database, Database], Awaitable[None]]
FILE = KeptFile(size=3, data=b"abc")


def _run(url: str, work: Work) -> None:
    async def run() -> None:
        async with open_database(url, "memory://") as one, open_database(url, "memory://") as other:
            await work(one, other)

    asyncio.run(run())


async def _all_entries(table: DraftTable, folder: str) -> list[tuple[str, int | None]]:
    found, after = list[tuple[str, int | None]](), ""
    while True:
        entries, following = await table.entries(folder, after)
        found += entries
        if following is None:
            return found
        after = following


def test_entries_show_one_level_whatever_the_page(catalogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(one: Database, _: Database) -> None:
        table = DraftTable(one, ACCOUNT)
        for path in ("a/b/1", "a/b/2", "a/b/3", "a/b.txt", "a/bb", "a/c/1", "a/c/2", "a/d", "x"):
            await table.put(path, "", FILE)
        await DraftTable(one, Account("elsewhere")).put("a/other", "", FILE)
        for page in (1, 2, 3, 100):
            monkeypatch.setattr(drafts, "_PAGE", page)
            entries = await _all_entries(table, "a")
            assert entries == [("b.txt", 3), ("b", None), ("bb", 3), ("c", None), ("d", 3)], page
            assert await _all_entries(table, "") == [("a", None), ("x", 3)]
            assert await _all_entries(table, "a/d") == []
            assert list(await table.files("a/b", 10)) == ["a/b/1", "a/b/2", "a/b/3"]

    _run(catalogue, work)


def test_bytes_in_rows_are_counted_whoever_writes(catalogue: str) -> None:
    async def work(one: Database, other: Database) -> None:
        tables = [DraftTable(database, ACCOUNT) for database in (one, other)]
        writes = [tables[n % 2].put("r/a", "r", KeptFile(size=n, data=b"x" * n)) for n in range(1, 17)]
        await asyncio.gather(*writes)
        (file,) = (await tables[0].files("r", 9)).values()
        assert await held(one) == (file.size, 0, 0)
        await put_store(one, "s")
        await tables[0].put("r/a", "r", KeptFile(size=9, store="s", path="p"))
        assert (await held(one))[0] == 0
        assert await tables[0].remove("r") == 1
        assert (await held(one))[0] == 0

    _run(catalogue, work)


def test_bytes_of_files_in_no_folder_are_counted_whoever_writes(catalogue: str) -> None:
    async def work(one: Database, other: Database) -> None:
        tables = [DraftTable(database, ACCOUNT) for database in (one, other)]
        for round in range(20):
            sizes = range(round, round + 6)
            await asyncio.gather(*(tables[n % 2].put(f"f{round}", "", KeptFile(size=n, data=b"x" * n)) for n in sizes))
        files = await tables[0].files("", 100)
        assert len(files) == 20
        assert await held(one) == (sum(file.size for file in files.values()), 0, 0)

    _run(catalogue, work)


@pytest.mark.parametrize(("top", "name"), [("", "artifacts"), ("run/artifacts/", "x"), ("run/", "x")])
def test_of_a_file_and_what_would_lie_in_it_one_is_written(catalogue: str, top: str, name: str) -> None:
    async def work(one: Database, other: Database) -> None:
        tables = [DraftTable(database, ACCOUNT) for database in (one, other)]
        for number in range(20):
            paths = [f"{top}{number}/{name}", f"{top}{number}/{name}/b/c"]
            done = await asyncio.gather(
                *(table.put(path, artifact_folder(path), FILE) for table, path in zip(tables, paths, strict=True)),
                return_exceptions=True,
            )
            assert sorted(type(each).__name__ for each in done) == ["Conflict", "NoneType"]
        assert len(await tables[0].files("", 100)) == 20

    _run(catalogue, work)


def test_folder_is_removed_in_parts(catalogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(one: Database, _: Database) -> None:
        monkeypatch.setattr(drafts, "_REMOVED", 2)
        table = DraftTable(one, ACCOUNT)
        for path in ("r/a/1", "r/a/2", "r/b/1", "r/b/2", "r/c", "s/1", "t"):
            await table.put(path, path.rpartition("/")[0], FILE)
        assert await table.remove("r") == 5
        assert [row.name for row in await table.folders("", 9, "")] == ["s"]
        assert await table.remove("t") == 1
        assert (await held(one))[0] == 3

    _run(catalogue, work)


def test_file_of_a_store_that_was_removed_is_refused(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        table = DraftTable(one, ACCOUNT)
        with pytest.raises(Conflict, match="removed in the meantime"):
            await table.put("r/a", "r", KeptFile(size=1, store="none", path="p"))
        assert await table.files("r", 9) == {}

    _run(catalogue, work)


def test_folders_are_noted_until_they_are_settled(catalogue: str) -> None:
    async def work(one: Database, other: Database) -> None:
        table, changed = DraftTable(one, ACCOUNT), ChangedFolders(other)
        await table.put("r/a", "r", FILE)
        (seen,) = await changed.quiet(0, 9)
        assert await changed.quiet(3600, 9) == []
        await table.put("r/b", "r", FILE)
        await changed.settle(seen)
        (again,) = await changed.quiet(0, 9)
        assert again.changed > seen.changed, "a change that came meanwhile is not forgotten"
        await changed.settle(again)
        assert await changed.quiet(0, 9) == []
        assert await table.remove("r/a") == 1
        assert len(await changed.quiet(0, 9)) == 1
        assert [row.name for row in await table.folders("", 9, "")] == ["r"]
        assert await table.remove("r") == 1
        assert await table.folders("", 9, "") == []
        assert await changed.quiet(0, 9) == []
        assert await table.remove("r") == 0

    _run(catalogue, work)


def test_folders_are_listed_below_another(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        table = DraftTable(one, ACCOUNT)
        for folder in ("1", "1/r", "1/s", "10", "2"):
            await table.put(f"{folder}/x", folder, FILE)
        assert [row.name for row in await table.folders("1", 2, "")] == ["1", "1/r"]
        assert [row.name for row in await table.folders("1", 9, "1/r")] == ["1/s"]
        assert [row.name for row in await table.folders("", 9, "1/s")] == ["10", "2"]

    _run(catalogue, work)


def test_stores_are_found_by_files_and_seals(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        table = DraftTable(one, ACCOUNT)
        for store in ("s1", "s2", "t0", "t1", "t2"):
            await put_store(one, store)
        await table.put("r/a/x", "r/a", KeptFile(size=1, store="s1", path="x"))
        await table.put("r/a/y", "r/a", KeptFile(size=1, store="s1", path="x"))
        await table.put("top", "", KeptFile(size=1, store="s2", path="top"))
        found = await NamesOfStores(one, "team").naming(["s1", "s2", "s3"], 9)
        held = [NamedStore("s1", "mlflow", "", "r/a", "file"), NamedStore("s2", "mlflow", "", "top", "file")]
        assert sorted(found, key=lambda each: each.store) == held
        assert await table.sealed("r") is None
        late = folder_version(await table.versions("r", 9))
        await table.put("r/a/x", "r/a", FILE)
        version = folder_version(await table.versions("r", 9))
        for store in ("t1", "t2"):
            await table.seal("r", version, store, 9)
            assert await table.sealed("r") == (store, version)
        await table.seal("r", late, "t0", 9)
        assert await table.sealed("r") == ("t2", version), "a slow replica replaced what is known of a later version"

    _run(catalogue, work)

"""Repositories: names move by compare-and-set with their commits, and are found by their stores."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.support.rows import ACCOUNT, put_store

from protoslice.catalog import Database, open_database
from protoslice.catalog.abandoned import purge_repositories
from protoslice.catalog.database import UniqueViolation
from protoslice.catalog.kept_files import KeptFile, KeptFiles, purge_kept_files
from protoslice.catalog.labels import HUB
from protoslice.catalog.repositories import (
    CommitRow,
    HistoryTable,
    Moved,
    NamedStore,
    NameRow,
    NamesOfStores,
    RepositoryGone,
    RepositoryTable,
)
from protoslice.catalog.spaces import Account
from protoslice.catalog.stores import StoreTable
from protoslice.errors import Conflict

Work = Callable[[Database, Database], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    """Run `work` with the database as two replicas see it."""

    async def run() -> None:
        async with open_database(url, "memory://") as one, open_database(url, "memory://") as other:
            await work(one, other)

    asyncio.run(run())


async def _history(database: Database, name: str = "ann/m", space: str = "team") -> HistoryTable:
    table = RepositoryTable(database, Account(space), HUB)
    return HistoryTable(database, Account(space), await table.get(name) or await table.create(name))


def _commit(store: str | None, number: int = 1, parent: str | None = None) -> CommitRow:
    digits = (store or "")[:40]
    return CommitRow(
        id=secrets.token_hex(12), digits=digits, store=store, parent=parent, number=number, at=number * 1_000_000
    )


def test_names_of_repositories_are_listed_by_prefix(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        table = RepositoryTable(one, Account("team"), HUB)
        for name in ("b", "a/b", "a", "a-b", "A-", "ab"):
            await table.create(name)
        await RepositoryTable(one, Account("team"), "oci").create("aa")
        await RepositoryTable(one, Account("elsewhere"), HUB).create("aa")
        assert [row.name for row in await table.page("", 10, "")] == ["A-", "a", "a-b", "a/b", "ab", "b"]
        assert [row.name for row in await table.page("a", 2, "a")] == ["a-b", "a/b"]
        assert [row.name for row in await table.page("a", 9, "a/b")] == ["ab"]
        with pytest.raises(UniqueViolation):
            await table.create("a")
        assert await table.remove("a")
        assert not await table.remove("a")
        assert await table.get("a") is None

    _run(catalogue, work)


def test_of_moves_at_once_one_takes_effect_and_no_other_leaves_a_commit(catalogue: str) -> None:
    async def work(one: Database, other: Database) -> None:
        tables = [await _history(database) for database in (one, other)]
        for number in range(1, 4):
            for writer in range(8):
                await put_store(one, f"{number}{writer}")
        seen: bytes | None = None
        for number in range(1, 4):
            commits = [_commit(f"{number}{writer}", number) for writer in range(8)]
            moves = [tables[n % 2].move("heads", "main", commit, seen, new=True) for n, commit in enumerate(commits)]
            done = await asyncio.gather(*moves, return_exceptions=True)
            (moved,) = [each for each in done if isinstance(each, NameRow)]
            assert sum(isinstance(each, Moved) for each in done) == 7, done
            assert await tables[0].name("heads", "main") == moved
            assert [await tables[0].commit(commit.digits) for commit in commits if commit != moved.commit] == [None] * 7
            seen = moved.version

    _run(catalogue, work)


def test_commit_of_a_store_that_was_removed_is_refused(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        table = await _history(one)
        await put_store(one, "a")
        await StoreTable(one, ACCOUNT).remove("a")
        with pytest.raises(Conflict, match="removed in the meantime"):
            await table.move("heads", "main", _commit("a"), None, new=True)
        assert await table.name("heads", "main") is None

    _run(catalogue, work)


def test_ancestors_follow_the_parents(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        table, line, version = await _history(one), list[CommitRow](), None
        for store in ("side", *(f"s{number}" for number in range(1, 6))):
            await put_store(one, store)
        for number in range(1, 6):
            line.insert(0, _commit(f"s{number}", number, line[0].id if line else None))
            version = (await table.move("heads", "main", line[0], version, new=True)).version
        side = _commit("side", 3, line[3].id)
        await table.move("heads", "side", side, None, new=True)
        assert await table.ancestors(line[0].id, 3) == line[:3]
        assert await table.ancestors(line[0].id, 9) == line
        assert await table.ancestors(side.id, 9) == [side, *line[3:]]
        assert await table.ancestors("none", 9) == []

    _run(catalogue, work)


def test_naming_finds_names_and_commits_without_one(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        first, second = await _history(one), await _history(one, "ann/n")
        stores = [f"{number}" * 64 for number in range(3)]
        for store in stores:
            await put_store(one, store)
        old, new = _commit(stores[0]), _commit(stores[1], 2)
        held = await first.move("heads", "main", old, None, new=True)
        await first.move("heads", "main", new, held.version, new=True)
        await first.move("tags", "v1", new, None, new=False)
        await second.move("heads", "main", _commit(stores[0]), None, new=True)
        await (await _history(one, space="elsewhere")).move("heads", "main", _commit(None), None, new=True)
        names = NamesOfStores(one, "team")
        expected = {
            NamedStore(stores[0], HUB, "ann/m", stores[0][:40], "commit"),
            NamedStore(stores[0], HUB, "ann/n", "main", "heads"),
            NamedStore(stores[1], HUB, "ann/m", "main", "heads"),
            NamedStore(stores[1], HUB, "ann/m", "v1", "tags"),
        }
        assert set(await names.naming([*stores, *map(str, range(300))], 10)) == expected
        assert len(await names.naming(stores[1:2], 1)) == 1

    _run(catalogue, work)


def test_names_are_paged_and_removed_once(catalogue: str) -> None:
    async def work(one: Database, other: Database) -> None:
        table = await _history(one)
        for store in ("v1", "a", "b"):
            await put_store(one, store)
        for kind, name in (("tags", "v1"), ("heads", "b"), ("heads", "a")):
            await table.move(kind, name, _commit(name), None, new=True)
        found = await table.names(2)
        assert [(each.kind, each.name) for each in found] == [("heads", "a"), ("heads", "b")]
        assert [each.name for each in await table.names(2, ("heads", "b"))] == ["v1"]
        removals = [each.remove("tags", "v1") for each in (table, await _history(other))]
        assert sorted(await asyncio.gather(*removals)) == [False, True]

    _run(catalogue, work)


def test_removal_of_a_repository_takes_all_that_is_in_it(catalogue: str) -> None:
    async def work(one: Database, other: Database) -> None:
        table = await _history(one)
        for store in ("1", "2"):
            await put_store(one, store)
        moved = await table.move("heads", "main", _commit("1"), None, new=True)
        row = await RepositoryTable(one, Account("team"), HUB).get("ann/m")
        assert row is not None
        kept = KeptFiles(one, "team", row.id, "staged")
        await kept.put("a", KeptFile(size=1, data=b"a"))
        assert await RepositoryTable(other, Account("team"), HUB).remove("ann/m")
        await purge_repositories(other)
        sql = "SELECT 1 FROM names UNION ALL SELECT 1 FROM commits UNION ALL SELECT 1 FROM kept_files"
        assert await one.read(lambda tx: tx.all(sql)) == []
        with pytest.raises(RepositoryGone):
            await table.move("heads", "other", _commit("2"), None, new=True)
        with pytest.raises(RepositoryGone):
            await table.move("heads", "main", _commit("2"), moved.version, new=True)

    _run(catalogue, work)


def test_kept_files_are_replaced_and_go_with_their_uploads(catalogue: str) -> None:
    async def work(one: Database, _: Database) -> None:
        row = await RepositoryTable(one, Account("team"), HUB).create("m")
        await put_store(one, "s")
        with pytest.raises(Conflict, match="removed in the meantime"):
            await KeptFiles(one, "team", row.id, "staged").put("a", KeptFile(size=3, store="none", path="p"))
        kept = KeptFiles(one, "team", row.id, "staged")
        first = await kept.put("a", KeptFile(size=3, upload="u"))
        assert await kept.get("a") == first
        second = await kept.put("a", KeptFile(size=1 << 40, store="s", path="p"))
        assert second.version != first.version
        assert await kept.get("a") == second == replace(second, upload=None)
        await kept.put("b", KeptFile(size=3, upload="u"))
        await purge_kept_files(one, 3600)
        assert await kept.get("b") is not None
        await purge_kept_files(one, -1)
        assert await kept.get("b") is None
        assert await kept.get("a") == second

    _run(catalogue, work)

"""Repositories: names move by compare-and-set with their commits, and are found by their stores."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import psycopg
import pytest
from tests.support.postgres import TestServer
from tests.support.rows import ACCOUNT, put_store

from protoslice.catalog import Database, open_database
from protoslice.catalog.abandoned import purge_commits, purge_repositories
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
from protoslice.storage import MemoryStorage
from protoslice.stores.collection import collect_garbage

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


@pytest.mark.parametrize("seed", range(4))
def test_collector_deletes_the_commits_that_nothing_leads_to(
    catalogue: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches are made, moved and removed at random, and what is left is compared with a walk along all parents."""
    monkeypatch.setattr("protoslice.catalog.database.BATCH", 3)

    async def work(one: Database, other: Database) -> None:
        random, table, parents, names = Random(seed), await _history(one), dict[str, str | None](), dict[str, NameRow]()
        for turn in range(60):
            name = random.choice("abcde")
            old = names.get(name)
            if old is not None and random.random() < 0.3:
                await table.remove("heads", name)
                del names[name]
            else:
                start = random.choice([None, *parents]) if old is None else random.choice([None, *[_id(old)] * 4])
                made = _commit(None, turn + 1, start)
                names[name] = await table.move("heads", name, made, None if old is None else old.version, new=True)
                parents[made.id] = start
            if turn % 10 == 9:
                await asyncio.gather(*(collect_garbage(MemoryStorage(), each) for each in (one, other)))
                reached = set[str | None]()
                for each in names.values():
                    place: str | None = _id(each)
                    while place is not None and place not in reached:
                        reached.add(place)
                        place = parents[place]
                left = await one.read(lambda tx: tx.all("SELECT id FROM commits"))
                assert {id for (id,) in left} == reached
                parents = {id: parents[id] for id in parents if id in reached}
                counted = await one.read(lambda tx: tx.all("SELECT sum(entries) FROM usage WHERE space = 'team'"))
                assert int(counted[0][0]) == len(left) + len(names) + 1

    _run(catalogue, work)


def _id(row: NameRow) -> str:
    assert row.commit is not None
    return row.commit.id


def test_purge_of_commits_reads_no_others(postgres: TestServer) -> None:
    """PostgreSQL has no statistics of a table that was filled just now, and must not need any."""
    url, kept, removed = postgres.new_catalogue(), 20_000, 700

    async def work(one: Database, _: Database) -> None:
        table = await _history(one)
        with psycopg.connect(url, autocommit=True) as connection:
            for each in ("commits", "names", "repositories"):
                connection.execute(f"ALTER TABLE {each} SET (autovacuum_enabled = false)".encode())
            connection.execute(
                """
                INSERT INTO commits (space, repository, id, digits, parent, number, title, message, author, at)
                SELECT 'team', r.id, 'c' || n, 'd' || n, CASE WHEN n > 1 THEN 'c' || (n - 1) END, n, '', '', '', n
                FROM repositories r, generate_series(1, %s) n WHERE r.name = 'ann/m'""",
                (kept + removed,),
            )
        for name, number in (("main", kept), ("side", kept + removed)):
            commit = CommitRow(id=f"c{number}", digits="", store=None, parent=f"c{number - 1}", number=number)
            await table.move("heads", name, commit, None, new=False)
        await table.remove("heads", "side")
        await purge_commits(one)
        assert await one.read(lambda tx: tx.all("SELECT count(*) FROM commits")) == [(kept,)]

    _run(url, work)
    with psycopg.connect(url, autocommit=True) as connection:
        ours = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while connection.execute(f"{ours} AND backend_type = 'client backend'".encode()).fetchone() is not None:
            time.sleep(0.01)  # until all that they have read is counted
        read = connection.execute(
            """
            SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
            WHERE relname = 'commits' AND schemaname = current_schema()"""
        ).fetchone()
    assert read is not None
    assert kept < read[0] < kept + 20 * removed, "the count reads all of them once"


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

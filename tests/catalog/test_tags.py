"""Tags: they move on condition, point to stores that exist, and have another version after each change.

Histories: branches move by compare-and-set with their commits, and unreachable content is collected.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from datetime import UTC, datetime
from random import Random

import psycopg
import pytest
from tests.support.postgres import TestServer
from tests.support.rows import ACCOUNT, SPACE, history_of, put_store

from protoslice.catalog import open_database, tags
from protoslice.catalog.abandoned import purge_commits, purge_repositories
from protoslice.catalog.histories import Author, BranchMoved, Commit, NoCommit, NoRepository, Ref, RefExists
from protoslice.catalog.kept_files import KeptFiles, RepositoryFile
from protoslice.catalog.labels import HUB
from protoslice.catalog.repositories import NamedStore, NamesOfStores, RepositoryTable
from protoslice.catalog.spaces import Usage
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import check_tag
from protoslice.catalog.tags import TagTable
from protoslice.catalog.webhooks import DeliveryTable, Webhook, WebhookTable
from protoslice.database import Database
from protoslice.errors import Changed, Conflict, InvalidInput, LimitExceeded, NotFound
from protoslice.storage import MemoryStorage
from protoslice.stores.collection import collect_garbage


@pytest.fixture
async def one(database: Database) -> TagTable:
    """Return the tags of a space of three stores."""
    for store in ("a", "b", "c"):
        await put_store(database, store)
    return TagTable(database, ACCOUNT)


@pytest.fixture
def other(replica: Database) -> TagTable:
    """Return the tags as another replica sees them."""
    return TagTable(replica, ACCOUNT)


async def test_put_points_tags_at_a_store_that_exists(one: TagTable, other: TagTable, database: Database) -> None:
    (first, is_new), (second, _) = await one.put(["t2", "t1"], "a")
    assert (first.name, first.store, is_new, second.name) == ("t1", "a", True, "t2")
    assert await other.get("t1") == first
    ((moved, is_new),) = await other.put(["t1"], "b")
    assert (moved.store, is_new) == ("b", False)
    assert await one.page(9, store="a") == ([second], None)
    assert await one.page(1) == ([moved], "t1")
    assert await one.page(1, "t1") == ([second], None)
    await one.put(["T1"], "a")
    assert [(await one.get(name)).store for name in ("t1", "T1")] == ["b", "a"], "tags differ by case"
    await StoreTable(database, ACCOUNT).remove("c")
    for gone in ("c", "none"):
        with pytest.raises(NotFound):
            await one.put(["t1"], gone)
    with pytest.raises(NotFound):
        await TagTable(database, Usage("elsewhere")).get("t1")


async def test_tag_has_another_entity_tag_whenever_it_is_set(one: TagTable) -> None:
    """A tag has another one even if it points to an earlier store again, so a condition on the first state fails."""
    etags = [(await one.put(["t"], store))[0][0].etag for store in ("a", "a", "b", "a")]
    await one.remove("t")
    etags.append((await one.put(["t"], "a"))[0][0].etag)
    assert len(set(etags)) == 5
    for condition in (etags[0], "no entity tag of ours"):
        with pytest.raises(Changed, match="changed"):
            await one.put(["t"], "b", if_match=condition)


async def test_of_moves_on_one_condition_one_takes_effect(one: TagTable, other: TagTable) -> None:
    made = await asyncio.gather(
        *((one, other)[n % 2].put(["t"], "a", if_none_match=True) for n in range(8)), return_exceptions=True
    )
    (((found, _),),) = [each for each in made if isinstance(each, list)]
    assert sum(isinstance(each, Changed) for each in made) == 7, made
    for _number in range(3):
        etag = found.etag
        moves = await asyncio.gather(
            *((one, other)[n % 2].put(["t"], "abc"[n % 3], if_match=etag) for n in range(8)), return_exceptions=True
        )
        (((found, _),),) = [each for each in moves if isinstance(each, list)]
        assert sum(isinstance(each, Changed) for each in moves) == 7, moves
        assert await one.get("t") == found
    for condition in ("other", etag):
        with pytest.raises(Changed):
            await one.remove("t", if_match=condition)
        with pytest.raises(Changed):
            await one.put(["none"], "a", if_match=condition)
    await other.remove("t", if_match=found.etag)
    with pytest.raises(NotFound, match="'t'"):
        await other.remove("t")


async def test_put_beside_a_removal_leaves_no_tag_of_a_removed_store(
    database: Database, one: TagTable, other: TagTable
) -> None:
    for number in range(10):
        await put_store(database, f"s{number}")
        table = StoreTable(database, ACCOUNT)
        await asyncio.gather(
            table.remove(f"s{number}"),
            *((one, other)[n % 2].put([f"t{n}"], f"s{number}") for n in range(4)),
            return_exceptions=True,
        )
        assert await one.page(9, store=f"s{number}") == ([], None)


async def test_last_set_is_the_newest_of_a_family(one: TagTable) -> None:
    for name in ("net:2", "net:1", "nets", "other:3"):
        await one.put([name], "a")
    found = await one.last_set("net:")
    assert found is not None
    assert found.name == "net:1"
    assert await one.last_set("none:") is None


async def test_tags_of_one_store_are_limited(one: TagTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "TAGS_OF_A_STORE", 3)
    await one.put(["t1", "t2", "t3"], "a")
    await one.put(["t3"], "a")
    with pytest.raises(LimitExceeded, match="already has 3 tags"):
        await one.put(["t0"], "a")
    await one.put(["t0"], "b")


async def test_events_of_tags_are_written_as_they_change(database: Database, one: TagTable) -> None:
    await WebhookTable(database).put(Webhook("h", SPACE, "ci", "https://hooks.example", (), 0.0, b"secret"))
    await one.put(["t"], "a")
    await one.remove("t")
    await put_store(database, "d", tags=["t"])
    await StoreTable(database, ACCOUNT).remove("d")
    await StoreTable(database, ACCOUNT).restore("d")
    deliveries = await DeliveryTable(database).page("h", dead=False, limit=99)
    told = Counter(json.loads(each.event)["type"].removeprefix("protoslice.") for each in deliveries)
    assert told == {"tag.set": 3, "tag.removed": 2, "store.created": 2, "store.removed": 1}


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", ".", "..", "-a", "a" * 129, "0123456789ab", "f" * 64, "a\n"])
def test_check_tag_refuses_other_names(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_tag(name)


@pytest.mark.parametrize(
    "name", ["a", "9", "a:b@c~d+e-f._", "A" * 128, "resnet50:3", "0123456789a", "CON", "a..b", "con.txt"]
)
def test_check_tag_accepts_names(name: str) -> None:
    assert check_tag(name) == name


async def test_other_names_are_neither_read_nor_set(one: TagTable) -> None:
    for refused in (one.get("a/b"), one.put(["t", "a/b"], "a"), one.remove("a/b"), one.page(1, "a/b")):
        with pytest.raises(InvalidInput):
            await refused
    assert await one.page(9) == ([], None)


def _commit(store: str | None, number: int = 1, parent: str | None = None) -> Commit:
    moment = datetime(2026, 1, 2, 3, 4, number % 60, 678, tzinfo=UTC)
    author = Author(f"title {number}", "message", "ann")
    return Commit(store=store, number=number, parent=parent, author=author, time=moment).placed()


async def test_of_moves_at_once_one_takes_effect_and_no_other_leaves_a_commit(
    database: Database, replica: Database
) -> None:
    histories = [await history_of(each) for each in (database, replica)]
    for number in range(1, 4):
        for writer in range(8):
            await put_store(database, f"{number}{writer}")
    ref = await histories[0].ref("heads", "main")
    assert ref == Ref("heads", "main", Commit())
    for number in range(1, 4):
        commits = [_commit(f"{number}{writer}", number) for writer in range(8)]
        moves = [histories[n % 2].move(ref, commit) for n, commit in enumerate(commits)]
        done = await asyncio.gather(*moves, return_exceptions=True)
        (ref,) = [each for each in done if isinstance(each, Ref)]
        assert sum(isinstance(each, BranchMoved) for each in done) == 7, done
        assert await histories[0].ref("heads", "main") == ref
        for commit in commits:
            if commit != ref.commit:
                with pytest.raises(NoCommit):
                    await histories[0].by_id(commit.id)


async def test_commit_of_a_store_that_was_removed_is_refused(database: Database) -> None:
    history = await history_of(database)
    await put_store(database, "a")
    await StoreTable(database, ACCOUNT).remove("a")
    for change in (
        history.move(Ref("heads", "main", Commit()), _commit("a")),
        history.create(Ref("tags", "v1", Commit(store="a"))),
    ):
        with pytest.raises(Conflict, match="removed in the meantime"):
            await change
    assert [ref async for ref in history.refs()] == []


async def test_ancestors_follow_the_parents(database: Database) -> None:
    history, line = await history_of(database), list[Commit]()
    ref = await history.ref("heads", "main")
    for store in ("side", *(f"s{number}" for number in range(1, 6))):
        await put_store(database, store)
    for number in range(1, 6):
        line.insert(0, _commit(f"s{number}", number, line[0].place if line else None))
        ref = await history.move(ref, line[0])
    side = _commit("side", 3, line[3].place)
    await history.move(Ref("heads", "side", Commit()), side)
    assert await history.ancestors(line[0].place or "", 3) == (line[:3], line[3].place)
    assert await history.ancestors(line[0].place or "", 9) == (line, None)
    assert await history.ancestors(side.place or "", 9) == ([side, *line[3:]], None)
    assert await history.ancestors("none", 9) == ([], None)
    assert (await history.at(side.place or ""), await history.at("none")) == (side, None)


async def test_naming_finds_names_and_commits_without_one(database: Database) -> None:
    first, second = await history_of(database), await history_of(database, "ann/n")
    stores = [f"{number}" * 64 for number in range(3)]
    for store in stores:
        await put_store(database, store)
    main = await first.move(await first.ref("heads", "main"), _commit(stores[0]))
    new = await first.move(main, _commit(stores[1], 2))
    await first.create(Ref("tags", "v1", new.commit))
    await second.move(await second.ref("heads", "main"), _commit(stores[0]))
    elsewhere = await history_of(database, space="elsewhere")
    await elsewhere.move(await elsewhere.ref("heads", "main"), _commit(None))
    names = NamesOfStores(database, "team")
    expected = {
        NamedStore(stores[0], HUB, "ann/m", stores[0][:40], "commit"),
        NamedStore(stores[0], HUB, "ann/n", "main", "heads"),
        NamedStore(stores[1], HUB, "ann/m", "main", "heads"),
        NamedStore(stores[1], HUB, "ann/m", "v1", "tags"),
    }
    assert set(await names.naming([*stores, *map(str, range(300))], 10)) == expected
    assert len(await names.naming(stores[1:2], 1)) == 1


async def test_refs_are_paged_and_removed_once(database: Database, replica: Database) -> None:
    history = await history_of(database)
    for store in ("v1", "a", "b"):
        await put_store(database, store)
    for key in ("tags/v1", "heads/b", "heads/a"):
        kind, name = key.split("/")
        await history.create(Ref("tags" if kind == "tags" else "heads", name, Commit(store=name)))
    with pytest.raises(RefExists):
        await history.create(Ref("tags", "v1", Commit(store="a")))
    found, cursor = await history.page(2, None)
    assert ([each.key for each in found], cursor) == (["heads/a", "heads/b"], "heads/b")
    assert all(each.commit.place is not None for each in found), "it has a place in this history from now on"
    found, cursor = await history.page(2, cursor)
    assert ([each.key for each in found], cursor) == (["tags/v1"], None)
    removals = [each.remove("tags", "v1") for each in (history, await history_of(replica))]
    done = await asyncio.gather(*removals, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["NoCommit", "NoneType"]


async def test_removal_of_a_repository_takes_all_that_is_in_it(database: Database, replica: Database) -> None:
    history = await history_of(database)
    for store in ("1", "2"):
        await put_store(database, store)
    main = await history.move(await history.ref("heads", "main"), _commit("1"))
    row = await RepositoryTable(database, ACCOUNT, HUB).get("ann/m")
    assert row is not None
    kept = KeptFiles(database, "team", row.id, "staged")
    await kept.put("a", RepositoryFile(size=1, data=b"a"))
    assert await RepositoryTable(replica, ACCOUNT, HUB).remove("ann/m")
    await purge_repositories(replica)
    sql = "SELECT 1 FROM names UNION ALL SELECT 1 FROM commits UNION ALL SELECT 1 FROM kept_files"
    assert await database.read(lambda tx: tx.all(sql)) == []
    for ref in (Ref("heads", "other", Commit()), main):
        with pytest.raises(NoRepository):
            await history.move(ref, _commit("2"))


@pytest.mark.parametrize("seed", range(4))
async def test_collector_deletes_the_commits_that_nothing_leads_to(
    database: Database, replica: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches are made, moved and removed at random; a walk along all parents gives the expected commits."""
    monkeypatch.setattr("protoslice.database.transactions.BATCH", 3)
    random, history, refs = Random(seed), await history_of(database), dict[str, Ref]()
    parents = dict[str | None, str | None]()
    for turn in range(60):
        name = random.choice("abcde")
        old = refs.get(name)
        if old is not None and random.random() < 0.3:
            await history.remove("heads", name)
            del refs[name]
        else:
            start = random.choice([None, *parents]) if old is None else random.choice([None, *[old.commit.place] * 4])
            made = _commit(None, turn + 1, start)
            refs[name] = await history.move(old or Ref("heads", name, Commit()), made)
            parents[made.place] = start
        if turn % 10 == 9:
            await asyncio.gather(*(collect_garbage(MemoryStorage(), each) for each in (database, replica)))
            reached = set[str | None]()
            for ref in refs.values():
                place = ref.commit.place
                while place is not None and place not in reached:
                    reached.add(place)
                    place = parents[place]
            left = await database.read(lambda tx: tx.all("SELECT id FROM commits"))
            assert {id for (id,) in left} == reached
            parents = {id: parents[id] for id in parents if id in reached}
            counted = await database.read(lambda tx: tx.all("SELECT sum(entries) FROM usage WHERE space = 'team'"))
            assert int(counted[0][0]) == len(left) + len(refs) + 1


async def test_purge_of_commits_reads_no_others(postgres: TestServer) -> None:
    """PostgreSQL has no statistics of a newly filled table, and must not need them."""
    url, kept, removed = postgres.new_catalogue(), 20_000, 700
    async with open_database(url, "memory://") as database:
        history = await history_of(database)
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
            await history.create(Ref("heads", name, Commit(place=f"c{number}", parent=f"c{number - 1}")))
        await history.remove("heads", "side")
        await purge_commits(database)
        assert await database.read(lambda tx: tx.all("SELECT count(*) FROM commits")) == [(kept,)]
    with psycopg.connect(url, autocommit=True) as connection:
        ours = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while connection.execute(f"{ours} AND backend_type = 'client backend'".encode()).fetchone() is not None:
            time.sleep(0.01)  # until all their reads are counted
        read = connection.execute(
            """
            SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
            WHERE relname = 'commits' AND schemaname = current_schema()"""
        ).fetchone()
    assert read is not None
    assert kept < read[0] < kept + 20 * removed, "the count reads all of them once"

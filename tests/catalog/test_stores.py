"""Stores: a name refers to one row; tags and usage change in the same transaction.

Lists of stores are compared with the same filter and sort in Python, on each engine.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

import pytest
from tests.support.rows import ACCOUNT, held, history_of, own, put_store, reserved
from tests.support.stores import collect_a_day_later, in_memory, read, upload

from protoslice.catalog import store_lists as listing
from protoslice.catalog.histories import Commit, Ref
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import MlflowTable, folder_version
from protoslice.catalog.objects import Collected, new_id
from protoslice.catalog.spaces import SpaceTable, Usage
from protoslice.catalog.store_lists import SORTS, StoreQuery
from protoslice.catalog.stores import StoreDraft, StoreTable
from protoslice.catalog.tags import TagTable
from protoslice.database import Database, Transaction, connect, upgrade
from protoslice.database.transactions import ACTOR, Actor
from protoslice.errors import NotFound
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import Stores


@pytest.fixture
def table(database: Database) -> StoreTable:
    """Return the stores of a space."""
    return StoreTable(database, ACCOUNT)


async def _tags(database: Database) -> dict[str, str]:
    return {tag.name: tag.store for tag in (await TagTable(database, ACCOUNT).page(99))[0]}


async def test_of_publishers_at_once_one_creates_the_store(
    database: Database, replica: Database, table: StoreTable
) -> None:
    done = await asyncio.gather(*(put_store((database, replica)[n % 2], "a", tags=[f"t{n}"]) for n in range(8)))
    (made,) = [each for each in done if each.created]
    assert {each.row.id for each in done} == {made.row.id}
    assert len(await _tags(database)) == 1, "one that was there gets its tags from who finds it sound"
    assert await held(database) == (0, 1, 7)
    assert await table.get("a", made.row.id) is not None


async def test_publish_of_a_shared_object_that_is_gone_leaves_nothing(database: Database, table: StoreTable) -> None:
    with pytest.raises(Collected):
        await put_store(database, "a", own=own(await reserved(database, 1)), shared=[new_id()], tags=["t"])
    assert await table.get("a") is None
    assert await _tags(database) == {}
    assert await held(database) == (0, 0, 0)


async def test_remove_takes_the_tags_and_restore_brings_them_back(database: Database, table: StoreTable) -> None:
    await put_store(database, "a", tags=["t1", "t2"], own=own(await reserved(database, 1)))
    assert await table.remove("a") == ["t1", "t2"]
    assert await table.remove("a") is None
    assert await table.get("a") is None
    assert await held(database) == (10, 0, 0)
    assert await table.starting_with("a", removed=True) == ["a"]
    await put_store(database, "b", tags=["t2"])
    found = await table.restore("a")
    assert found is not None
    assert found.taken == ["t2"]
    assert await _tags(database) == {"t1": "a", "t2": "b"}
    assert await held(database) == (10, 2, 14)
    assert await table.restore("none") is None


async def test_sent_again_a_removed_store_is_another_row_and_restore_finds_it(
    database: Database, table: StoreTable
) -> None:
    first = (await put_store(database, "a", manifest=b"1")).row
    await table.remove("a")
    second = (await put_store(database, "a", manifest=b"2")).row
    assert first.id != second.id
    found = await table.restore("a")
    assert found is not None
    assert found.row == second
    assert await held(database) == (0, 1, 7)
    await table.remove("a")
    found = await table.restore("a")
    assert found is not None
    assert found.row == second, "an older generation came back"


async def test_of_restorers_at_once_all_succeed_and_one_counts(
    database: Database, replica: Database, table: StoreTable
) -> None:
    tables = (table, StoreTable(replica, ACCOUNT))
    for _ in range(5):
        row = (await put_store(database, "a")).row
        await table.remove("a")
        found = await asyncio.gather(*(tables[n % 2].restore("a") for n in range(8)))
        assert {None if each is None else each.row.id for each in found} == {row.id}
        assert await held(database) == (0, 1, 7)
        await table.remove("a")


async def test_restore_beside_a_publisher_ends_with_one_store(
    database: Database, replica: Database, table: StoreTable
) -> None:
    for _ in range(8):
        await put_store(database, "a")
        await table.remove("a")
        restoring = StoreTable(replica, ACCOUNT).restore("a")
        restored, _made = await asyncio.gather(restoring, put_store(database, "a"))
        there = await table.get("a")
        assert restored is not None
        assert there is not None
        assert await held(database) == (0, 1, 7)
        await table.remove("a")


async def test_what_replaces_a_damaged_store_counts_once(database: Database, table: StoreTable) -> None:
    old = (await put_store(database, "a", tags=["t"], own=own(await reserved(database, 1)))).row
    new = await put_store(database, "a", replaces=old.id, own=own(await reserved(database, 1), 12))
    assert new.created
    assert await held(database) == (22, 1, 7)
    assert await _tags(database) == {"t": "a"}
    late = await put_store(database, "a", replaces=old.id)
    assert not late.created, "who saw the damage late found the new row"
    assert late.row.id == new.row.id


def test_sent_again_a_damaged_store_is_whole() -> None:
    data = b"abc" * 4000

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        made = await upload(stores, {"a.bin": data}, expected_sha256=hashlib.sha256(data).digest())
        (key,) = [each for each in storage._objects if each.text.startswith("objects/")]
        await storage.put(ObjectKey(key.text), b"x" * len(data))
        again = await upload(stores, {"a.bin": data})
        assert again.store.id == made.store.id
        assert await read((await stores.view(made.store.id)).file("a.bin")) == data
        await collect_a_day_later(storage)
        assert await read((await stores.view(made.store.id)).file("a.bin")) == data
        with pytest.raises(NotFound):
            await storage.stat(key)

    in_memory(work)


async def test_pages_are_newest_first_and_by_tag(database: Database, table: StoreTable) -> None:
    for number in range(5):
        await put_store(database, f"s{number}", created=number // 2, type="abc"[number % 2], tags=[f"t{9 - number}"])
    await table.remove("s1")
    page, _ = await table.page(StoreQuery(), limit=9, after=None, room=9, tags=9)
    assert [each.row.digest for each in page] == ["s4", "s3", "s2", "s0"]
    rest, _ = await table.page(StoreQuery(), limit=9, after=page[1].key, room=9, tags=9)
    assert [each.row.digest for each in rest] == ["s2", "s0"]
    page, _ = await table.page(StoreQuery(type="a"), limit=9, after=None, room=9, tags=9)
    assert [each.row.digest for each in page] == ["s4", "s2", "s0"]
    assert [each.row.digest for each in await table.tagged("t", limit=9, after="", room=9, tags=9)] == [
        "s4",
        "s3",
        "s2",
        "s0",
    ]
    assert [each.row.digest for each in await table.tagged("t", limit=1, after="t6", room=9, tags=9)] == ["s2"]


SPACES: Final = ("team", "team-2")
WORDS: Final = ("ResNet", "bert", "100%_\\", "[v2]*?", "naïve", "ÉCOLE", "模型", "a.b", "--")


@dataclass
class Model:
    digest: str
    size: int
    created: int
    type: str | None
    uploader: str
    names: list[str] = field(default_factory=list)
    path: str = ""
    """The path of its file."""


async def _fill(database: Database, space: str, seed: int, count: int) -> list[Model]:
    """Publish stores with tags, some in repositories and some in folders of artifacts; remove a few."""
    await SpaceTable(database).create(space)
    table, chosen, made = StoreTable(database, Usage(space)), random.Random(seed), list[Model]()
    for number in range(count):
        tags = [f"{chosen.choice(('ResNet', 'bert', 'a.b', 'yolo'))}-{number}:{each}" for each in range(number % 3)]
        model = Model(
            digest=f"{seed}-{number}", size=chosen.choice((1, 5, 1 << 40)), created=chosen.randrange(5),
            type=chosen.choice((None, "onnx", "tf")), uploader=chosen.choice(("", "ann", "ben")), names=tags,
            path=f"{chosen.choice(WORDS)}/Run-{number}.onnx" if number % 4 else "",
        )  # fmt: skip
        ACTOR.set(Actor(model.uploader, model.uploader))
        new = StoreDraft(
            id=new_id(), digest=model.digest, type=model.type, size=model.size, created=model.created,
            manifest=b"{}", weight=1, paths=[each for each in [model.path] if each],
        )  # fmt: skip
        await table.publish(new, tags)
        made.append(model)
    mlflow = MlflowTable(database, Usage(space))
    for number, word in enumerate(WORDS):
        folder, model = f"{word}/run".replace("\\", "="), made[number]
        await mlflow.put(f"{folder}/f", RepositoryFile(size=1, store=model.digest, path="p"))
        await mlflow.freeze(folder, folder_version(await mlflow.versions(folder)), model.digest)
        model.names.append(f"mlflow-artifacts:/{folder}")
    history = await history_of(database, "ann/Bert", space=space)
    for number in range(4):
        model, name = made[-1 - number], f"r{number}"
        await history.create(Ref("heads", name, Commit(store=model.digest)))
        model.names.append(f"ann/Bert@{name}")
    for model in made[5::7]:
        await table.remove(model.digest)
        if model.names or model.size > 5:
            made.remove(model)
        else:
            await table.restore(model.digest)
    return made


def _matches(name: str, term: str) -> bool:
    """Return True if a term finds a name, by the rules of `LabelSearch`."""
    folded, term = name.casefold(), term.casefold()
    return term in folded if len(term) > 2 else folded.startswith(term)


def _expected(models: list[Model], query: StoreQuery) -> list[str]:
    found = list[tuple[Any, str]]()
    for each in models:
        names = [name for name in each.names if query.name is None or _matches(name, query.name)]
        long = query.name is not None and len(query.name) > 2
        if each.path and (query.name is None or (long and _matches(each.path, query.name))):
            names.append(f"~\n{each.path}")
        fits = (
            (query.name is None or names)
            and query.type in {None, each.type or ""}
            and query.uploader in {None, each.uploader}
            and (query.min_size or 0) <= each.size <= (query.max_size or 1 << 62)
            and (query.since is None or each.created >= query.since)
            and (query.until is None or each.created < query.until)
            and not (query.nameless and each.names)
        )
        if fits and (query.sort != "name" or names):
            keys = {"created": 0, "size": each.size, "type": each.type or "", "uploader": each.uploader}
            key = min(name.casefold() for name in names) if query.sort == "name" else keys[query.sort]
            found.append(((key, 0 if query.sort in {"name", "size"} else each.created), each.digest))
    return [digest for _, digest in sorted(found, reverse=query.descending)]


def _queries() -> Iterator[StoreQuery]:
    names = (
        None, "resnet", "ESNET-1", "bert", "be", "run", "100%_\\", "[v2]*?", "v2]", "NAÏVE", "école", "模型/", "@r",
        "zzz", "run-1", ".ONNX", "--/r", "%",
    )  # fmt: skip
    filters: tuple[dict[str, Any], ...] = (
        {}, {"type": "onnx"}, {"type": ""}, {"uploader": "ann"}, {"min_size": 5}, {"max_size": 5}, {"since": 2},
        {"until": 2, "since": 1}, {"type": "tf", "uploader": "ben", "min_size": 5, "until": 4},
    )  # fmt: skip
    for (at, name), (row, given), (column, sort) in product(enumerate(names), enumerate(filters), enumerate(SORTS)):
        if (at + row + column) % len(SORTS):
            continue  # a fifth of all combinations, in which every two of name, filter and sort meet
        for descending in (False, True):
            yield StoreQuery(name=name, sort=sort, descending=descending, **given)
            if name is None and sort != "name":
                yield StoreQuery(nameless=True, sort=sort, descending=descending, **given)


async def _pages(table: StoreTable, query: StoreQuery, limit: int) -> list[str]:
    found, after = list[str](), None
    for _ in range(200):
        page, rest = await table.page(query, limit=limit, after=after, room=1 << 20, tags=9)
        found += [each.row.digest for each in page]
        after = rest if rest is not None else page[-1].key if len(page) == limit else None
        if after is None:
            return found
    raise AssertionError("a list does not end")


def _same_order(found: list[str], expected: list[str], models: list[Model], query: StoreQuery) -> bool:
    """Return True if two lists are equal, except for the order of stores with the same key."""

    def key(digest: str) -> Any:
        (model,) = (each for each in models if each.digest == digest)
        return (
            query.sort in {"name"} and digest,
            model.size if query.sort == "size" else model.created,
            model.type if query.sort == "type" else "",
            model.uploader if query.sort == "uploader" else "",
        )

    return sorted(found) == sorted(expected) and [*map(key, found)] == [*map(key, expected)]


@pytest.mark.parametrize(("candidates", "walked"), [(2000, 3000), (1, 4), (6, 5)])
async def test_lists_have_the_stores_that_match_in_order(
    catalogue: str, candidates: int, walked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_CANDIDATES", candidates)
    monkeypatch.setattr(listing, "_WALKED", walked)
    database = connect(catalogue, "memory://")
    await upgrade(database)
    models = {space: await _fill(database, space, seed, 40) for seed, space in enumerate(SPACES)}
    try:
        for number, query in enumerate(_queries()):
            space = SPACES[number // 2 % 2]
            found = await _pages(StoreTable(database, Usage(space)), query, 3 + number % 5)
            expected = _expected(models[space], query)
            assert _same_order(found, expected, models[space], query), (query, found, expected)
    finally:
        await database.close()


async def test_stores_with_many_names_are_listed_in_time(catalogue: str) -> None:
    """A store may have any number of names, but the statements read few of them."""
    database = connect(catalogue, "memory://")
    await upgrade(database)
    table = StoreTable(database, Usage("team"))
    for number in range(3):
        new = StoreDraft(id=new_id(), digest=f"d{number}", size=1, created=number, type=None, manifest=b"{}", weight=1)
        await table.publish(new, [f"t{number}"])

    def name(tx: Transaction) -> None:
        sql = """
            INSERT INTO names (space, repository, kind, name, store, version, updated, label)
            VALUES ('team', 0, 'tag', :name, :store, :version, 0, :label)"""
        names = [(f"n{each:05}", f"d{each % 3}") for each in range(9000)]
        rows = [{"name": name, "store": store, "label": f"team\n{name}", "version": b"v"} for name, store in names]
        tx.many(sql, rows)

    await database.fill(name)
    try:
        for query in (
            StoreQuery(sort="name"), StoreQuery(sort="name", descending=False, min_size=0),
            StoreQuery(sort="name", name="n00"), StoreQuery(sort="size", name="n0"), StoreQuery(name="zzz"),
        ):  # fmt: skip
            found = await _pages(table, query, 10)
            assert sorted(set(found)) == ([] if query.name == "zzz" else ["d0", "d1", "d2"]), query
    finally:
        await database.close()

"""Lists of stores compared with the same filter and sort in Python, on each engine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

import pytest
from tests.support.rows import history_of

from protoslice.catalog import store_lists as listing
from protoslice.catalog.histories import Commit, Ref
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import MlflowTable, folder_version
from protoslice.catalog.objects import new_id
from protoslice.catalog.spaces import SpaceTable, Usage
from protoslice.catalog.store_lists import SORTS, StoreQuery
from protoslice.catalog.stores import StoreDraft, StoreTable
from protoslice.database import Database, Transaction, connect, upgrade
from protoslice.database.transactions import ACTOR, Actor

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
    """Path of its file."""


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
    """True if a name is found by a term, as `LabelSearch` says."""
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
        None,
        "resnet",
        "ESNET-1",
        "bert",
        "be",
        "run",
        "100%_\\",
        "[v2]*?",
        "v2]",
        "NAÏVE",
        "école",
        "模型/",
        "@r",
        "zzz",
        "run-1",
        ".ONNX",
        "--/r",
        "%",
    )
    filters: tuple[dict[str, Any], ...] = (
        {}, {"type": "onnx"}, {"type": ""}, {"uploader": "ann"}, {"min_size": 5}, {"max_size": 5}, {"since": 2},
        {"until": 2, "since": 1}, {"type": "tf", "uploader": "ben", "min_size": 5, "until": 4},
    )  # fmt: skip
    for name, given, sort, descending in product(names, filters, SORTS, (False, True)):
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
    """True if two lists are equal, but for the order of stores with the same key."""

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
            space = SPACES[number % 2]
            found = await _pages(StoreTable(database, Usage(space)), query, 3 + number % 5)
            expected = _expected(models[space], query)
            assert _same_order(found, expected, models[space], query), (query, found, expected)
    finally:
        await database.close()


async def test_stores_with_many_names_are_listed_in_time(catalogue: str) -> None:
    """A store may have any number of names: the statements look at few of them."""
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

"""The collector: it deletes due objects unless something refers to them, rows first and bytes later.

An erasure removes everything that leads to a store, in bounded transactions, and completes an interrupted erasure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.catalogues import shared_catalogue
from tests.support.interrupted import FaultyDatabase, FaultyStorage, InterruptedDatabase, Interruption, at_every_call
from tests.support.rows import ACCOUNT, SPACE, an_upload, held, keys, own, put_store, reserved

from protoslice.catalog import open_database
from protoslice.catalog.artifacts import ArtifactTable, StoredManifest
from protoslice.catalog.collector import CollectorTable, TrashRow
from protoslice.catalog.derived import DerivedTable
from protoslice.catalog.erasing import Eraser
from protoslice.catalog.git_objects import GitCommitRow, GitObjectRow, GitObjectTable
from protoslice.catalog.histories import Commit, History, Ref
from protoslice.catalog.kept_files import KeptFiles, RepositoryFile
from protoslice.catalog.labels import HUB
from protoslice.catalog.marker import check_storage
from protoslice.catalog.mlflow import MlflowTable, folder_version
from protoslice.catalog.objects import UNFINISHED_SECONDS, ObjectTable
from protoslice.catalog.repositories import RepositoryTable
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import Digest
from protoslice.catalog.tags import TagTable
from protoslice.catalog.uploads import ObjectChanges, UploadTable
from protoslice.database import Database, transactions
from protoslice.database.snapshots import tables
from protoslice.database.transactions import SECOND, Transaction
from protoslice.errors import ProtosliceError
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores.collection import GarbageReport, collect_garbage

Work = Callable[[Database, CollectorTable], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    async def run() -> None:
        async with open_database(url, "memory://") as database:
            await work(database, CollectorTable(database))

    asyncio.run(run())


@pytest.fixture
def table(database: Database) -> CollectorTable:
    """Return the collector's functions on the catalogue."""
    return CollectorTable(database)


async def _all(database: Database, sql: str, **values: Any) -> list[Any]:
    """Execute a statement and return its rows."""
    return await database.write(lambda tx: tx.all(sql, **values))


async def _trash(table: CollectorTable) -> list[TrashRow]:
    return [row async for rows in table.trash() for row in rows]


async def _let_pass(database: Database, seconds: float) -> None:
    """Move all past times some seconds back."""

    def work(tx: Any) -> None:
        gone = int(seconds * SECOND)
        tx.run("UPDATE objects SET unpublished = unpublished - :gone", gone=gone)
        tx.run("UPDATE trash SET due = due - :gone", gone=gone)
        tx.run("UPDATE stores SET deleted = deleted - :gone", gone=gone)

    await database.write(work)


async def test_objects_expire_a_day_after_they_were_reserved(database: Database, table: CollectorTable) -> None:
    lost, kept = await reserved(database, 2)
    await put_store(database, "a", own=own([kept]))
    await _let_pass(database, UNFINISHED_SECONDS - 60)
    (later,) = await reserved(database, 1)
    await table.expire_objects(UNFINISHED_SECONDS)
    assert (await table.drop_objects(0)).objects == 0
    await _let_pass(database, 61)
    await table.expire_objects(UNFINISHED_SECONDS)
    assert (await table.drop_objects(0)).objects == 1
    assert await keys(database) == {later.key, kept.key}
    assert await _all(database, "SELECT key, passes FROM trash") == [(lost.key, 2)]
    await table.expire_objects(60)
    assert await keys(database) == {later.key, kept.key}
    assert (await table.drop_objects(0)).objects == 1, "those of a shorter time"


async def _all_rows(database: Database) -> dict[str, list[Any]]:
    """Return all rows of tables that the collector changes."""
    found = {}
    for table in ("objects", "stores", "store_objects", "trash", "uploads", "usage", "names"):
        found[table] = sorted(map(repr, await _all(database, f"SELECT * FROM {table}")))
    return found


async def test_dry_run_counts_what_a_collection_drops_and_changes_nothing(database: Database) -> None:
    storage = MemoryStorage()
    await check_storage(storage, database, mark=True)
    shared, alone, *unfinished = await reserved(database, 5)
    await put_store(database, "a", own=own([shared, alone]))
    await put_store(database, "b", shared=[shared.id])
    await StoreTable(database, ACCOUNT).remove("a")
    uploads = UploadTable(database, ACCOUNT)
    upload = await uploads.create(an_upload("u"), keep_seconds=60)
    await uploads.put(upload, kept_parts=0, keep_seconds=-60, objects=ObjectChanges(own=own(unfinished[:1], 100)))
    before = await _all_rows(database)
    collect = partial(collect_garbage, storage, database, grace_seconds=-1, unfinished_seconds=-1)
    expected = await collect(dry_run=True)
    assert await _all_rows(database) == before
    assert (expected.stores, expected.objects, expected.bytes, expected.deleted) == (1, 4, 110, 0)
    assert (await collect()) == expected
    assert (await collect(dry_run=True)).objects == 0


async def test_drop_keeps_what_something_refers_to(database: Database, table: CollectorTable) -> None:
    stored, uploaded, derived, free = await reserved(database, 4)
    row = (await put_store(database, "a", own=own([stored]))).row
    uploads = UploadTable(database, ACCOUNT)
    upload = await uploads.create(an_upload("u"), keep_seconds=60)
    changes = ObjectChanges(own=own([uploaded]))
    await uploads.put(upload, kept_parts=0, keep_seconds=60, objects=changes)
    await DerivedTable(database, SPACE).put(row.id, "x", None, own=own([derived], None)[0])
    await ObjectTable(database).drop(SPACE, [free])
    await _all(database, "UPDATE objects SET due = 1 RETURNING id")
    dropped = await table.drop_objects(0)
    assert (dropped.objects, dropped.stored_bytes) == (1, 0)
    assert await keys(database) == {stored.key, uploaded.key, derived.key}
    assert await _all(database, "SELECT 1 FROM objects WHERE due IS NOT NULL") == []
    assert await _all(database, "SELECT key, sums, passes FROM trash") == [(free.key, 1, 2)]


async def test_store_is_purged_after_the_grace_and_its_bytes_are_discharged(
    database: Database, table: CollectorTable
) -> None:
    shared, alone = await reserved(database, 2)
    await put_store(database, "a", own=own([shared, alone]))
    await put_store(database, "b", shared=[shared.id])
    await StoreTable(database, ACCOUNT).remove("a")
    assert await table.purge_stores(3600) == 0
    assert await table.purge_stores(-1) == 1
    assert (await table.drop_objects(0)).objects == 1
    assert await keys(database) == {shared.key}
    assert await held(database) == (10, 1, 7)
    assert await StoreTable(database, ACCOUNT).restore("a") is None


@pytest.mark.parametrize("published", [True, False])
def test_bytes_go_after_the_delay_and_twice_if_they_were_never_published(catalogue: str, published: bool) -> None:
    async def work(database: Database, table: CollectorTable) -> None:
        storage = MemoryStorage()
        await check_storage(storage, database, mark=True)
        (each,) = await reserved(database, 1)
        key = ObjectKey(each.key)

        async def collect() -> GarbageReport:
            await storage.put(key, b"late" if await _all(database, "SELECT 1 FROM trash") else b"first")
            return await collect_garbage(storage, database, grace_seconds=-1, delay_seconds=600)

        if published:
            await put_store(database, "a", own=own([each]))
            await StoreTable(database, ACCOUNT).remove("a")
        else:
            await ObjectTable(database).drop(SPACE, [each])
        assert ((await collect()).objects, await keys(database)) == (1, set())
        for passed, times in ((599, 0), (2, 1), (80_000, 0), (7000, int(not published)), (90_000, 0)):
            await _let_pass(database, passed)
            assert (await collect()).deleted == times, passed
            assert (key in storage._objects) == (times == 0)
        assert await _all(database, "SELECT 1 FROM trash") == []

    _run(catalogue, work)


def test_collectors_at_once_share_the_work(catalogue: str) -> None:
    async def work(database: Database, table: CollectorTable) -> None:
        objects = await reserved(database, 60)
        await ObjectTable(database).drop(SPACE, objects)
        async with open_database(catalogue, "memory://") as other:
            tables = [CollectorTable(each) for each in (database, other)]
            dropped = await asyncio.gather(*(tables[n % 2].drop_objects(0) for n in range(6)))
            assert sum(each.objects for each in dropped) == 60
            trash = await asyncio.gather(*(_trash(tables[n % 2]) for n in range(6)))
        assert sorted(row.key for rows in trash for row in rows) == sorted(each.key for each in objects)
        assert await _trash(table) == []

    _run(catalogue, work)


ERASED: Final = "e" * 64
OTHER: Final = "0f" * 32
_COUNTED: Final = """
    SELECT (SELECT count(*) FROM repositories WHERE id > 1)
        + (SELECT count(*) FROM names WHERE kind NOT IN ('folder', 'sealed', 'files')) + (SELECT count(*) FROM commits)
        + (SELECT count(*) FROM manifests) + (SELECT count(*) FROM kept_files WHERE kind IN ('file', 'blob')),
        (SELECT sum(entries) FROM usage)"""


async def fill(catalogue: Database) -> None:
    """Make content of every kind lead to one store, and some of it also to another store."""
    shared, alone, again = await reserved(catalogue, 3)
    await put_store(catalogue, ERASED, own=own([alone]), tags=["gone:1"], paths=["p"])
    await StoreTable(catalogue, ACCOUNT).remove(ERASED)
    await put_store(catalogue, ERASED, own=own([shared, again]), tags=["gone:1", "gone:2"], held=3, paths=["p"])
    await put_store(catalogue, OTHER, shared=[shared.id], tags=["kept:1"], paths=["p"])
    repositories = RepositoryTable(catalogue, ACCOUNT, HUB)
    for name in ("ann/m", "ann/removed"):
        row = await repositories.create(name)
        history = History(catalogue, ACCOUNT, row.id, row.name)
        main = await history.ref("heads", "main")
        for number, store in enumerate((OTHER, ERASED, ERASED)):
            commit = Commit(place=f"{number}", store=store, parent=main.commit.place, number=number + 1)
            main = await history.move(main, commit)
        await history.create(Ref("tags", "v1", main.commit))
        await KeptFiles(catalogue, SPACE, row.id, "staged").put("f", RepositoryFile(size=1, store=ERASED, path="f"))
        git = GitObjectTable(catalogue, SPACE, row.id)
        await git.put([GitCommitRow("1", "ab", ERASED)], [GitObjectRow("cd", b"tree", ERASED)], None)
    await repositories.remove("ann/removed")
    for image, store in (("one", ERASED), ("two", ERASED), ("two", OTHER)):
        table = ArtifactTable(catalogue, ACCOUNT, image)
        await table.put_manifest(StoredManifest(Digest(f"sha256:{store}"), "m", b"{}", store), ["t"])
        await table.put_blobs({Digest.of(b"b"): RepositoryFile(size=1, store=ERASED, path="b")})
    mlflow = MlflowTable(catalogue, ACCOUNT)
    for folder in ("run", "changed"):
        for name, file in (
            ("a", RepositoryFile(size=1, data=b"a")),
            ("b", RepositoryFile(size=1, store=ERASED, path="b")),
        ):
            await mlflow.put(f"{folder}/{name}", file)
        await mlflow.freeze(folder, folder_version(await mlflow.versions(folder)), ERASED)
    await mlflow.put("changed/c", RepositoryFile(size=1, data=b"c"))
    uploads = UploadTable(catalogue, ACCOUNT)
    for state, store in (("stored", ERASED), ("complete", ""), ("open", "")):
        new = await uploads.create(an_upload(state, state=state, store=store), keep_seconds=60)
        changes = ObjectChanges(shared=frozenset({again.id} if state == "complete" else ()))
        await uploads.put(new, kept_parts=0, keep_seconds=60, objects=changes)


async def left(catalogue: Database) -> set[str]:
    """Return the tables that name the erased store, except those that record past events."""

    def read(tx: Transaction) -> set[str]:
        return {
            table
            for table, columns in tables()
            if table not in {"audit", "deliveries"}
            for row in tx.all(f"SELECT {', '.join(columns)} FROM {table}")
            if any(ERASED[:40] in str(cell) for cell in row)
        }

    return await catalogue.export(read)


async def check(catalogue: Database) -> None:
    """Check that exactly the content that leads to the store is gone, and that it is counted."""
    assert await left(catalogue) == set()
    assert not await Eraser(catalogue, SPACE).is_left(ERASED)
    rows = await catalogue.read(lambda tx: {sql: tx.all(sql) for sql in FACTS})
    assert {sql: sorted(found) for sql, found in rows.items()} == FACTS
    counted, entries = (await catalogue.read(lambda tx: tx.all(_COUNTED)))[0]
    assert counted == entries
    assert await held(catalogue) == (10 + 2 + 1 + 1, 1, 7)


FACTS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "SELECT digest FROM stores": [(OTHER,)],
    "SELECT name FROM repositories WHERE protocol = 'hub'": [("ann/m",)],
    "SELECT id, store FROM commits WHERE store IS NOT NULL": [("0", OTHER)],
    "SELECT id FROM commits": [("0",), ("1",), ("2",)],
    "SELECT store FROM names WHERE kind = 'files'": [(OTHER,)],
    "SELECT kind, name FROM names WHERE kind NOT IN ('folder', 'sealed', 'files')": [
        ("heads", "main"), ("tag", "kept:1"), ("tags", "t"), ("tags", "v1"),
    ],
    "SELECT digest FROM manifests": [(f"sha256:{OTHER}",)],
    "SELECT kind, name FROM kept_files WHERE kind <> 'git-clearing'": [
        ("blob", Digest.of(b"b").text), ("file", "changed/a"), ("file", "changed/c"),
    ],
    "SELECT id FROM uploads WHERE state <> 'gone'": [("open",)],
    "SELECT count(*) FROM trash WHERE due > 0": [(2,)],
}  # fmt: skip
"""The rows that remain after an erasure; one of the objects is shared with another store."""


@pytest.mark.parametrize("batch", [1, 500])
async def test_all_that_leads_to_a_store_is_erased(catalogue: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BATCH", batch)
    async with open_database(catalogue, "memory://") as opened:
        await fill(opened)
        assert {"stores", "names", "commits", "manifests", "kept_files", "uploads"} <= await left(opened)
        shown = await Eraser(opened, SPACE).look(ERASED)
        assert (shown.stores, shown.objects, shown.sharing, shown.uploads) == (2, 3, [OTHER], 0)
        assert {"gone:1", "gone:2", "ann/m@main", "ann/m@v1", "one:t"} <= {*shown.names}
        await Eraser(opened, SPACE).erase(ERASED)
        await check(opened)
        said = await opened.read(lambda tx: tx.all("SELECT what FROM audit WHERE subject = :it", it=ERASED))
        assert ("store.erased",) in said
        assert await Eraser(opened, SPACE).starting_with(ERASED[:12]) == {ERASED}


@pytest.mark.parametrize("answers", [False, True], ids=["before", "after"])
def test_an_interrupted_erasure_is_finished_by_the_next(tmp_path: Path, answers: bool) -> None:
    async def at(number: int) -> bool:
        async with shared_catalogue(tmp_path / f"{number}.sqlite") as shared:
            await fill(shared)
            mortal = FaultyStorage(MemoryStorage(), number, after=answers, stays_down=True)
            with suppress(ProtosliceError):
                await Eraser(FaultyDatabase(shared, mortal), SPACE).erase(ERASED)
            await Eraser(shared, SPACE).erase(ERASED)
            await check(shared)
            return mortal.failed

    asyncio.run(at_every_call(at, 20))


def test_a_store_that_is_sent_again_meanwhile_is_erased_or_stays_whole(tmp_path: Path) -> None:
    whole = set[bool]()

    async def at(number: int) -> bool:
        async with shared_catalogue(tmp_path / f"{number}.sqlite") as shared:
            await fill(shared)

            async def send() -> None:
                (object,) = await reserved(shared, 1)
                await put_store(shared, ERASED, own=own([object]), tags=["again"])

            interruption = Interruption(send)
            interruption.arm(number)
            eraser = Eraser(InterruptedDatabase(shared, interruption), SPACE)
            await eraser.erase(ERASED)
            row = await StoreTable(shared, ACCOUNT).get(ERASED)
            tags = {tag.name for tag in (await TagTable(shared, ACCOUNT).page(9))[0]}
            objects = "SELECT 1 FROM store_objects r JOIN stores s ON s.id = r.store WHERE s.digest = :digest"
            there = await shared.read(lambda tx: len(tx.all(objects, digest=ERASED)))
            assert (row is not None, "again" in tags, there) in {
                (True, True, 1),
                (False, False, 0),
            }
            assert await Eraser(shared, SPACE).is_left(ERASED) == (row is not None)
            if interruption.reached:
                whole.add(row is not None)
            return interruption.reached

    asyncio.run(at_every_call(at, 20))
    assert whole == {True, False}, "sent before, and after"

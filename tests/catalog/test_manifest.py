"""Manifests: their content, and how they are read again.

Derived facts: small facts are in rows, large facts in objects, and purged stores have none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.support.rows import SPACE, own, put_store, reserved

from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.derived import LARGEST_ROW, DerivedFacts, DerivedSources, DerivedTable
from protoslice.catalog.manifest import Manifest, ObjectLocation, checked, with_digest
from protoslice.catalog.new_objects import NewObjects, Reservations
from protoslice.catalog.objects import Collected, OwnObject, new_id
from protoslice.catalog.spaces import NO_QUOTA, Quotas, SpaceTable
from protoslice.concurrency.executor import Worker
from protoslice.database import Database
from protoslice.database.transactions import ForeignKeyViolation
from protoslice.errors import DatabaseUnavailable, IntegrityError
from protoslice.facts import File
from protoslice.storage import MemoryStorage, ObjectKey

FIRST, SECOND = "objects/aa/69-aa00", "objects/bb/6a-bb00"
MANIFEST = Manifest(
    id="",
    type="onnx.ModelProto",
    root="m.onnx",
    chunks=2,
    min_chunk=1,
    max_chunk=2,
    created=datetime(2026, 11, 22, tzinfo=UTC),
    source="upload",
    files=(File("m.onnx", 7, "a" * 64),),
    objects=(ObjectLocation(7, key=FIRST, etag="e"),),
    schema="5" * 64,
    planner=1,
).named()


def test_what_is_encoded_is_decoded() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST


def test_records_are_kept_byte_for_byte() -> None:
    records = {"index": bytes(range(256)), "plan": b""}
    manifest = replace(MANIFEST, inline=records, beside={"schema": SECOND})
    found = Manifest.decode(manifest.encode())
    assert (found.inline, found.beside) == (records, {"schema": SECOND})
    assert (MANIFEST.object_ids, manifest.object_ids) == ({0x69}, {0x69, 0x6A})
    assert manifest.named().id == MANIFEST.id, "where the records lie is no part of a store's identity"


def test_sums_are_kept_once_for_each_object() -> None:
    pack = ObjectLocation(9, key=FIRST, etag="e", sums=b"1234")
    apart = ObjectLocation(1 << 30, key=SECOND, etag="f")
    packed = tuple(ObjectLocation(3, parts=(pack,), at=at) for at in (0, 3, 6))
    files = tuple(File(path, 3, "a" * 64) for path in "abc")
    manifest = replace(MANIFEST, files=(*files, File("m.onnx", 1 << 30, "b" * 64)), objects=(*packed, apart))
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.encode().count(b"MTIzNA==") == 1
    assert manifest.object_ids == {0x69, 0x6A}


def test_bytes_of_files_are_kept_in_their_locations() -> None:
    held = ObjectLocation(3, held=b"abc")
    manifest = replace(MANIFEST, files=(File("m.onnx", 3, "a" * 64),), objects=(held,), inline={"index": b"i"})
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.object_ids == set()
    assert held.is_held
    assert ObjectLocation.joined([held, held]).is_held
    assert not MANIFEST.objects[0].is_held


@pytest.mark.parametrize("held", ["?", "YWI="])
def test_bytes_of_a_file_that_are_none_or_too_few_are_damage(held: str) -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it")) | {"objects": [{"size": 3, "held": held}]}
    with pytest.raises(IntegrityError, match="parse"):
        Manifest.decode(with_digest(json.dumps(raw).encode()))


def test_a_manifest_without_records_of_its_own_is_read() -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it"))
    del raw["inline"]
    assert Manifest.decode(with_digest(json.dumps(raw).encode())) == MANIFEST


def test_records_that_are_no_bytes_are_damage() -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it")) | {"inline": {"index": "?"}}
    with pytest.raises(IntegrityError, match="parse"):
        Manifest.decode(with_digest(json.dumps(raw).encode()))


def test_another_version_is_refused() -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it")) | {"version": 1}
    with pytest.raises(IntegrityError, match="version"):
        Manifest.decode(with_digest(json.dumps(raw).encode()))


@pytest.fixture
def storage() -> MemoryStorage:
    """Return an empty storage."""
    return MemoryStorage()


@pytest.fixture
async def facts(database: Database, storage: MemoryStorage) -> AsyncIterator[DerivedFacts]:
    """Return the facts of a store."""
    worker, reservations = Worker(1), Reservations(database)
    await SpaceTable(database).create(SPACE)
    row, room = (await put_store(database, "a")).row, Quotas(SpaceTable(database), SPACE, NO_QUOTA)
    table = DerivedTable(database, SPACE)
    yield DerivedSources(table, storage, lambda: NewObjects(storage, reservations, room, SPACE), worker).of(row.id)
    await reservations.close()
    await worker.close()


async def _due(database: Database) -> set[str]:
    """Return the keys of the objects that the collector examines."""
    return {key for (key,) in await database.read(lambda tx: tx.all("SELECT key FROM objects WHERE due IS NOT NULL"))}


@pytest.mark.parametrize("size", [0, LARGEST_ROW, LARGEST_ROW + 1])
async def test_save_makes_an_object_of_a_large_fact_only(
    database: Database, storage: MemoryStorage, facts: DerivedFacts, size: int
) -> None:
    assert await facts.load("digests") is None
    assert not await facts.has("digests")
    for data in (b"a" * size, b"b" * size):
        await facts.save("digests", data)
        assert await facts.load("digests") == data
    assert await facts.has("digests")
    objects = [item.key.text for item in (await storage.list()).items]
    assert len(objects) == 2 * (size > LARGEST_ROW)
    assert len(await _due(database)) == (size > LARGEST_ROW), "the object of the first fact is garbage"
    assert await DerivedTable(database, "other").get(facts._row, "digests") is None


async def test_load_of_a_damaged_fact_is_none(database: Database, storage: MemoryStorage, facts: DerivedFacts) -> None:
    await facts.save("digests", b"a" * (LARGEST_ROW + 1))
    (item,) = (await storage.list()).items
    for damage in (b"a" * 100, None):
        await (storage.delete(item.key) if damage is None else storage.put(ObjectKey(item.key.text), damage))
        assert await facts.load("digests") is None
    await DerivedTable(database, SPACE).put(facts._row, "reads", b"a" * 100)
    assert await facts.load("reads") is None


async def test_save_without_a_database_is_no_error_and_load_is(database: Database, facts: DerivedFacts) -> None:
    await database.close()
    await facts.save("digests", b"a")
    with pytest.raises(DatabaseUnavailable):
        await facts.load("digests")


async def test_fact_of_a_store_or_object_that_is_gone_is_refused(database: Database, facts: DerivedFacts) -> None:
    records = DerivedTable(database, SPACE)
    with pytest.raises(ForeignKeyViolation):
        await records.put(new_id(), "digests", b"a", pieces=[b"p"])
    with pytest.raises(Collected):
        await records.put(facts._row, "digests", None, own=OwnObject(new_id(), None))
    assert await database.read(lambda tx: tx.all("SELECT 1 FROM derived UNION ALL SELECT 1 FROM pieces")) == []


async def test_of_writers_at_once_one_keeps_its_object_and_all_others_are_due(
    database: Database, replica: Database, facts: DerivedFacts
) -> None:
    objects = await reserved(database, 12)
    records = [DerivedTable(each, SPACE) for each in (database, replica)]
    await asyncio.gather(
        *(records[n % 2].put(facts._row, "x", None, own=each) for n, each in enumerate(own(objects, None)))
    )
    found = await DerivedTable(database, SPACE).get(facts._row, "x")
    assert found is not None
    assert await _due(database) == {each.key for each in objects} - {found.key}


async def test_facts_and_their_objects_go_with_the_store(database: Database, facts: DerivedFacts) -> None:
    await facts.save("digests", b"a" * (LARGEST_ROW + 1), pieces=[b"p"])
    await database.write(lambda tx: tx.run("UPDATE stores SET deleted = 1"))
    assert await CollectorTable(database).purge_stores(0) == 1
    assert await database.read(lambda tx: tx.all("SELECT 1 FROM derived UNION ALL SELECT 1 FROM pieces")) == []
    assert len(await _due(database)) == 1

"""Uploads: parts in order, overtaken writers, and expiry by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.rows import ACCOUNT, SPACE, an_upload, held, own, put_store, reserved

from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.manifest import ObjectLocation
from protoslice.catalog.objects import Collected, ObjectTable, OwnObject, new_id
from protoslice.catalog.spaces import Usage
from protoslice.catalog.uploads import ObjectChanges, Upload, UploadTable, XorbRow, new_upload_id
from protoslice.database import Database
from protoslice.database.transactions import ConcurrentChange
from protoslice.errors import Gone, NotFound

_NONE = ObjectChanges()


@pytest.fixture
async def one(database: Database) -> AsyncIterator[UploadTable]:
    """Return the uploads of a space."""
    yield UploadTable(database, ACCOUNT)
    assert await UploadTable(database, Usage("elsewhere")).get("a") is None


@pytest.fixture
def other(replica: Database) -> UploadTable:
    """Return the uploads of the space, as another replica sees them."""
    return UploadTable(replica, ACCOUNT)


def _upload(id: str, **more: object) -> Upload:
    return an_upload(id, **{"client": "ann"} | more)


def _parts(*names: str) -> tuple[ObjectLocation, ...]:
    return tuple(ObjectLocation(1, uri=name) for name in names)


async def test_change_adds_and_replaces_parts(one: UploadTable, other: UploadTable) -> None:
    held = await one.create(_upload("a"), keep_seconds=60)
    for number, (names, kept) in enumerate((("1", 0), ("123", 1), ("14", 1), ("14", 2), ("", 0)), 1):
        changed = replace(held, parts=_parts(*names), store=f"{kept}")
        held = await one.put(changed, kept_parts=kept, keep_seconds=None, objects=_NONE)
        found = await other.get("a")
        assert found == (held, True)
        assert (held.parts, held.store, held.epoch, found[0].epoch) == (_parts(*names), f"{kept}", number, number)


async def test_change_of_a_writer_that_was_overtaken_is_refused(one: UploadTable, other: UploadTable) -> None:
    slow = await one.create(_upload("a"), keep_seconds=60)
    fast = await other.take("a")
    with pytest.raises(ConcurrentChange):
        await one.put(replace(slow, parts=_parts("1")), kept_parts=0, keep_seconds=60, objects=_NONE)
    assert (await other.get("a")) == (fast, True)
    await other.put(replace(fast, parts=_parts("2")), kept_parts=0, keep_seconds=60, objects=_NONE)
    with pytest.raises(ConcurrentChange):
        await other.put(replace(fast, parts=_parts("3")), kept_parts=0, keep_seconds=60, objects=_NONE)
    found = await one.get("a")
    assert found is not None
    assert found[0].parts == _parts("2")


async def test_of_changes_at_once_one_takes_effect(one: UploadTable, other: UploadTable) -> None:
    held = await one.create(_upload("a"), keep_seconds=60)
    changes = [
        table.put(replace(held, parts=_parts(str(n))), kept_parts=0, keep_seconds=60, objects=_NONE)
        for n, table in enumerate((one, other) * 4)
    ]
    done = await asyncio.gather(*changes, return_exceptions=True)
    assert sum(isinstance(each, ConcurrentChange) for each in done) == 7, done
    assert await one.get("a") == (next(each for each in done if isinstance(each, Upload)), True)


async def test_take_and_epoch_find_no_upload_that_is_over(one: UploadTable) -> None:
    done, late, none = new_upload_id(), new_upload_id(), new_upload_id()
    await one.create(_upload(done, state="stored"), keep_seconds=60)
    await one.create(_upload(late), keep_seconds=-1)
    assert (await one.take(done)).epoch == 0
    assert await one.epoch(done) == 0
    with pytest.raises(Gone):
        await one.take(late)
    assert await one.epoch(late) is None
    found = await one.get(late)
    assert found is not None
    assert (found[0].epoch, found[1]) == (0, False)
    with pytest.raises(NotFound):
        await one.take(none)
    assert await one.get(none) is None


async def test_open_by_client_counts_what_is_open(one: UploadTable) -> None:
    for number, state in enumerate(("open", "complete", "stored", "failed", "gone")):
        await one.create(_upload(f"a{number}", state=state), keep_seconds=60)
    await one.create(_upload("late"), keep_seconds=-1)
    await one.create(_upload("used", state="complete", used=True), keep_seconds=60)
    await one.create(_upload("b", client="ben"), keep_seconds=60)
    assert await one.open_by_client() == {"ann": 2, "ben": 1}


async def _refers(database: Database) -> dict[int, bool]:
    """Return the objects to which uploads refer, each with True if `due` is set."""
    rows = await database.read(lambda tx: tx.all("SELECT id, due FROM objects"))
    held = {id for (id,) in await database.read(lambda tx: tx.all("SELECT object FROM upload_objects"))}
    return {id: due is not None for id, due in rows if id in held or due is not None}


async def test_expired_uploads_end_and_are_forgotten_after_the_grace(one: UploadTable) -> None:
    database = one._database
    objects = await reserved(database, 2)
    for id, seconds, each in (("a", -1, objects[0]), ("b", 60, objects[1])):
        made = await one.create(_upload(id, parts=_parts("1")), keep_seconds=seconds)
        changes = ObjectChanges(own=own([each]))
        made = await one.put(made, kept_parts=1, keep_seconds=None, objects=changes)
    await CollectorTable(database).expire_uploads()
    await CollectorTable(database).purge_uploads(3600)
    found = await one.get("a")
    assert found is not None
    assert (found[0].state, found[0].parts) == ("gone", ())
    assert await _refers(database) == {objects[0].id: True, objects[1].id: False}
    with pytest.raises(ConcurrentChange):
        await one.put(replace(found[0], epoch=1), kept_parts=0, keep_seconds=60, objects=_NONE)
    await CollectorTable(database).purge_uploads(-1)
    assert await one.get("a") is None
    assert await one.get("b") == (made, True)


async def test_change_refers_to_own_and_shared_objects_and_lets_go_of_others(one: UploadTable) -> None:
    database = one._database
    mine, next, shared = await reserved(database, 3)
    await put_store(database, "s", own=own([shared]))
    held_upload = await one.create(_upload("a"), keep_seconds=60)
    changes = ObjectChanges(own=own([mine]), shared=frozenset({shared.id}))
    held_upload = await one.put(held_upload, kept_parts=0, keep_seconds=60, objects=changes)
    assert await _refers(database) == {mine.id: False, shared.id: False}
    assert (await held(database))[0] == 20
    changes = ObjectChanges(own=own([next], 5), gone=frozenset({mine.id}))
    held_upload = await one.put(held_upload, kept_parts=0, keep_seconds=60, objects=changes)
    assert await _refers(database) == {mine.id: True, shared.id: False, next.id: False}
    assert (await held(database))[0] == 25
    changes = ObjectChanges(gone=frozenset({next.id, shared.id}))
    await one.put(replace(held_upload, state="gone"), kept_parts=0, keep_seconds=60, objects=changes)
    assert await _refers(database) == {mine.id: True, shared.id: True, next.id: True}


@pytest.mark.parametrize("loss", ["shared", "own"])
async def test_change_that_needs_an_object_that_is_gone_changes_nothing(one: UploadTable, loss: str) -> None:
    database = one._database
    (mine,) = await reserved(database, 1)
    before = await one.create(_upload("a"), keep_seconds=60)
    changes = ObjectChanges(own=own([mine]))
    if loss == "shared":
        changes = replace(changes, shared=frozenset({new_id()}))
    else:
        await ObjectTable(database).drop(SPACE, [mine])
    with pytest.raises(Collected):
        await one.put(replace(before, parts=_parts("1")), kept_parts=0, keep_seconds=60, objects=changes)
    assert await one.get("a") == (before, True)
    assert (await held(database))[0] == 0


async def test_xorb_that_comes_twice_stays_as_it_came_first(one: UploadTable, other: UploadTable) -> None:
    database = one._database
    objects = own(await reserved(database, 4))
    session = await one.create(_upload("a", state="complete"), keep_seconds=60)
    xorbs = [XorbRow(n, b"%d" % n) for n in range(4)]
    added = await asyncio.gather(
        *((one, other)[n % 2].add_xorb("a", "x", xorb, objects[n]) for n, xorb in enumerate(xorbs))
    )
    assert sum(added) == 1
    assert await one.xorb("a", "x") == xorbs[added.index(True)]
    assert await one.xorbs("a") == {"x": added.index(True)}
    assert (await held(database))[0] == 10
    await one.put(replace(session, state="gone"), kept_parts=0, keep_seconds=60, objects=_NONE)
    assert await one.xorbs("a") == {}
    assert await _refers(database) == {objects[added.index(True)].id: True}
    with pytest.raises(NotFound):
        await one.add_xorb("a", "y", xorbs[0], OwnObject(0, 1))
    await CollectorTable(database).purge_uploads(-1)
    assert await one.get("a") is None

"""Backups that are interrupted, or lose their hold: no snapshot needs objects that its backup does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from tests.support.interrupted import FaultyStorage, InjectedFault
from tests.support.rows import own, put_store, reserved

from protoslice.catalog import collector, open_database
from protoslice.catalog.marker import Marker, marker_of, write_marker
from protoslice.database import Database
from protoslice.errors import Conflict
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import backups
from protoslice.stores.backups import Checked, Copied, back_up, check, snapshots

T = TypeVar("T")


class LostHold(InterceptedStorage):
    """A storage that loses a backup's hold in the first call that `when` chooses, and records the later calls."""

    def __init__(self, inner: Storage, database: Database, when: Callable[[str, ObjectKey | None], bool]) -> None:
        super().__init__(inner)
        self._database = database
        self._when = when
        self.later: list[str] | None = None

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if self.later is not None:
            self.later.append(f"{name} {key}")
        elif self._when(name, key):
            self.later = []
            await self._database.write(lambda tx: tx.run("DELETE FROM holds"))
            (hold,) = NotedHold.made
            assert hold._renewing is not None
            await asyncio.wait([hold._renewing], timeout=20)
        return await call()


class NotedHold(collector.Hold):
    """A hold that a test can find."""

    made: list[collector.Hold]

    async def __aenter__(self) -> collector.Hold:
        NotedHold.made.append(self)
        return await super().__aenter__()


@pytest.fixture(autouse=True)
def short_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "HOLD_SECONDS", 5.0)  # renewed, or known to be lost, twice a second
    monkeypatch.setattr(backups, "Hold", NotedHold)
    monkeypatch.setattr(backups, "_BATCH", 1)
    monkeypatch.setattr(NotedHold, "made", [], raising=False)


async def with_objects(work: Callable[[Database, Storage], Awaitable[T]]) -> T:
    """Run `work` with a catalogue of three objects, and their storage."""
    storage = MemoryStorage()
    with TemporaryDirectory() as folder:
        async with open_database(f"sqlite:///{folder}/catalog.sqlite", "memory://") as database:
            objects = await reserved(database, 3)
            for each in objects:
                await storage.put(ObjectKey(each.key), b"0123456789")
            await put_store(database, "store", own=own(objects))
            await write_marker(storage, Marker((await marker_of(database)).catalogue, backup=False))
            return await work(database, storage)


async def whole(target: Storage) -> None:
    """Check that a target with a snapshot has all objects."""
    if await snapshots(target):
        found = [each.key async for each in target.iterate(ObjectKey("objects"))]
        assert len(found) == 3


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_backup_leaves_no_snapshot_without_its_objects(after: bool) -> None:
    async def work(database: Database, storage: Storage) -> None:
        for number in range(1, 100):
            target = MemoryStorage()
            faulty = FaultyStorage(target, number, after=after, stays_down=True)
            NotedHold.made.clear()
            try:
                await back_up(storage, database, faulty, keep=1)
            except InjectedFault:
                await whole(target)
                assert faulty.failed
            else:
                await whole(target)
                assert number > 5
                return
        raise AssertionError("the backup does not end")

    asyncio.run(with_objects(work))


async def lost(
    when: Callable[[str, ObjectKey | None], bool], act: Callable[[Storage, Database, Storage], Awaitable[object]]
) -> list[str]:
    """Return the calls of the target after the hold was lost during `act`, which must fail."""

    async def work(database: Database, storage: Storage) -> list[str]:
        target = LostHold(MemoryStorage(), database, when)
        with pytest.raises(Conflict, match="start it again"):
            await act(storage, database, target)
        assert target.later is not None
        return target.later

    return await with_objects(work)


def saving(storage: Storage, database: Database, target: Storage) -> Awaitable[Copied]:
    return back_up(storage, database, target, keep=1)


def checking(storage: Storage, database: Database, target: Storage) -> Awaitable[Checked]:
    return check(target, database, None, delete_unknown=True)  # type: ignore[arg-type]  # nothing is read


def test_no_object_is_copied_once_the_hold_is_lost() -> None:
    later = asyncio.run(lost(lambda name, key: key is not None and str(key).startswith("objects/"), saving))
    assert not [each for each in later if "objects/" in each or "snapshots/" in each]


def test_nothing_is_deleted_from_a_backup_whose_hold_was_lost() -> None:
    later = asyncio.run(lost(lambda name, key: key is not None and str(key).startswith("snapshots/"), saving))
    assert not [each for each in later if each.startswith("delete")]


def test_a_check_whose_hold_was_lost_deletes_nothing() -> None:
    later = asyncio.run(lost(lambda name, key: name == "list", checking))
    assert not [each for each in later if each.startswith("delete")]

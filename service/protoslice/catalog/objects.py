"""Objects of the storage: reserved by writers, published with their first reference, trashed after the last.

While the row of an object exists, a foreign key may refer to it; a later reference raises `ForeignKeyViolation`. A
writer reserves rows before it writes bytes, so bytes without a row do not occur. It publishes them within a day:
`unpublished` is the time of the reservation, and NULL after publishing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from protoslice.database.transactions import SECOND, Database, Transaction
from protoslice.errors import Conflict

UNFINISHED_SECONDS: Final = 86_400.0
"""Seconds after its reservation for which an object may be published."""
LARGEST_SUMLESS: Final = 16 << 20
"""Bytes of the largest object whose checksums are in manifests; a larger one has an object for its checksums."""
_UNPUBLISHED: Final = "space = :space AND id = :id AND unpublished IS NOT NULL"
_CHANGE: Final = 1_798_761_600_000
"""2027-01-01 in milliseconds since the epoch: ids before it have 22 random bits, which 63 bits hold until 2039; later
ones have 20, until 2077. An id has to be larger than all older ones."""


class Collected(Conflict):
    """Garbage collection deleted objects of an upload before the upload was complete."""

    def __init__(self) -> None:
        super().__init__(
            "Data of this upload was deleted before the upload was complete, because it took longer than a day, or "
            "a store that it shares data with was removed: nothing was stored, send it again"
        )


class ReservationLost(Collected):
    """An object that this process reserved is gone, and perhaps all its other reservations."""


@dataclass(frozen=True, slots=True)
class ReservedObject:
    """Row of an object that is about to be written."""

    id: int
    key: str


@dataclass(frozen=True, slots=True)
class OwnObject:
    """Object that a request has written; without a `size` it does not count for quotas."""

    id: int
    size: int | None


class _Ids:
    """Ids of this process.

    In each millisecond, ids start at a random number, so that two processes seldom make the same id.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> int:
        milliseconds = time.time_ns() // 1_000_000
        bits = 22 if milliseconds < _CHANGE else 20
        now = (_CHANGE << 22) + ((milliseconds - _CHANGE) << bits)
        with self._lock:
            self._last = now + secrets.randbits(bits) if now > self._last else self._last + 1
            return self._last


_ids: Final = _Ids()


def new_id() -> int:
    """Return an id that sorts after older ids, to a millisecond; two processes may, rarely, make the same id."""
    return _ids.new()


def new_objects(count: int) -> list[ReservedObject]:
    """Return objects under random keys, which are never used again.

    The keys share a folder, which a storage on a disk creates and syncs only once.
    """
    folder, ids = secrets.token_hex(1), [new_id() for _ in range(count)]
    return [ReservedObject(id, f"objects/{folder}/{id:x}-{secrets.token_hex(15)}") for id in ids]


def object_id(key: str) -> int:
    """Return the id of the object at a key that `new_objects` made."""
    return int(key.rpartition("/")[2].partition("-")[0], 16)


class ObjectTable:
    """Objects that are about to be written: each has a row before a byte of it is in the storage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, space: str, objects: Sequence[ReservedObject]) -> None:
        """Insert objects, which are collected after `UNFINISHED_SECONDS` unless they are published before."""
        sql = "INSERT INTO objects (space, id, key, unpublished) VALUES (:space, :id, :key, :now)"
        rows = [{"space": space, "id": each.id, "key": each.key} for each in objects]
        await self._database.write(lambda tx: tx.many(sql, [row | {"now": tx.now} for row in rows]))

    async def drop(self, space: str, objects: Iterable[ReservedObject]) -> None:
        """Leave objects that were written but not published to the collector; published ones stay."""
        sql = f"UPDATE objects SET unpublished = NULL, due = :now WHERE {_UNPUBLISHED}"
        await self._change(sql, [(space, each) for each in objects])

    async def delete(self, unused: Iterable[tuple[str, ReservedObject]]) -> None:
        """Delete the rows of objects (space, object) of which no byte was written."""
        await self._change(f"DELETE FROM objects WHERE {_UNPUBLISHED}", unused)

    async def count_unpublished(self, seconds: float) -> int:
        """Return how many objects were reserved longer ago than `seconds` and are not published."""
        sql = "SELECT count(*) FROM objects WHERE unpublished < :before"
        return int(
            await self._database.read(
                lambda tx: tx.all(sql, before=tx.now - int(seconds * SECOND))[0][0], background=True
            )
        )

    async def _change(self, sql: str, objects: Iterable[tuple[str, ReservedObject]]) -> None:
        rows = [{"space": space, "id": each.id} for space, each in objects]

        def work(tx: Transaction, limit: int) -> int:
            now = {"now": tx.now} if ":now" in sql else {}
            tx.many(sql, [row | now for row in rows[:limit]])
            return min(limit, len(rows))

        async for done in self._database.write_in_batches(work):
            del rows[:done]


def publish_objects(tx: Transaction, space: str, own: Iterable[OwnObject]) -> int:
    """Publish objects and return the bytes that count; raise `Collected` if an object was collected."""
    sql = f"UPDATE objects SET unpublished = NULL, size = :size WHERE {_UNPUBLISHED}"
    total = 0
    for each in sorted(own, key=lambda each: each.id):
        if tx.run(sql, space=space, id=each.id, size=each.size) != 1:
            raise ReservationLost
        total += each.size or 0
    return total


def release_objects(tx: Transaction, space: str, objects: Iterable[int]) -> None:
    """Mark objects that lost a reference, so that the collector examines them."""
    sql = "UPDATE objects SET due = :now WHERE space = :space AND id = :id AND unpublished IS NULL"
    tx.many(sql, [{"now": tx.now, "space": space, "id": id} for id in sorted(objects)])

"""Objects of the storage: writers reserve them and publish them with a first reference; the collector deletes them.

A foreign key can refer to an object only while the object's row exists; later references raise `ForeignKeyViolation`. A
writer reserves rows before it writes bytes, so there are no bytes without a row. The writer must publish the objects
within a day. The column `unpublished` holds the time of the reservation, and NULL once the object is published.
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
"""Seconds for which an object may be published after its reservation."""
LARGEST_SUMLESS: Final = 16 << 20
"""Largest size in bytes of an object whose checksums are in manifests; larger objects have a checksum object."""
_UNPUBLISHED: Final = "space = :space AND id = :id AND unpublished IS NOT NULL"
_CHANGE: Final = 1_798_761_600_000
"""The start of 2027 in milliseconds since the epoch, from which ids have fewer random bits.

Ids before this time have 22 random bits, and 63 bits suffice for them until 2039. Later ids have 20 random bits,
which suffice until 2077. The change keeps every id larger than all older ids.
"""


class Collected(Conflict):
    """The error for an upload whose objects the collector deleted before the upload was complete."""

    def __init__(self) -> None:
        super().__init__(
            "The upload took longer than a day, or a store that shares data with it was removed. Some data of "
            "the upload was deleted, and nothing was stored: send the upload again"
        )


class ReservationLost(Collected):
    """The error for a reserved object whose row is gone; all reservations of this process may be gone too."""


@dataclass(frozen=True, slots=True)
class ReservedObject:
    """The row of an object that is about to be written."""

    id: int
    key: str


@dataclass(frozen=True, slots=True)
class OwnObject:
    """An object that a request has written; if `size` is None, the object does not count towards quotas."""

    id: int
    size: int | None


class _Ids:
    """A generator of ids.

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
    """Return an id that sorts after ids of earlier milliseconds; two processes may rarely make the same id."""
    return _ids.new()


def new_objects(count: int) -> list[ReservedObject]:
    """Return objects with random keys, which are never used again.

    All keys share one folder, which a storage on a disk then creates and syncs only once.
    """
    folder, ids = secrets.token_hex(1), [new_id() for _ in range(count)]
    return [ReservedObject(id, f"objects/{folder}/{id:x}-{secrets.token_hex(15)}") for id in ids]


def object_id(key: str) -> int:
    """Return the id of an object from its key, which `new_objects` made."""
    return int(key.rpartition("/")[2].partition("-")[0], 16)


class ObjectTable:
    """The rows of objects that are about to be written; a row exists before any byte of its object is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, space: str, objects: Sequence[ReservedObject]) -> None:
        """Insert the rows of objects; the collector deletes objects that are unpublished after `UNFINISHED_SECONDS`."""
        sql = "INSERT INTO objects (space, id, key, unpublished) VALUES (:space, :id, :key, :now)"
        rows = [{"space": space, "id": each.id, "key": each.key} for each in objects]
        await self._database.write(lambda tx: tx.many(sql, [row | {"now": tx.now} for row in rows]))

    async def drop(self, space: str, objects: Iterable[ReservedObject]) -> None:
        """Leave written but unpublished objects to the collector; published objects stay unchanged."""
        sql = f"UPDATE objects SET unpublished = NULL, due = :now WHERE {_UNPUBLISHED}"
        await self._change(sql, [(space, each) for each in objects])

    async def delete(self, unused: Iterable[tuple[str, ReservedObject]]) -> None:
        """Delete the rows of reserved objects, given as pairs (space, object); no byte of these objects was written."""
        await self._change(f"DELETE FROM objects WHERE {_UNPUBLISHED}", unused)

    async def count_unpublished(self, seconds: float) -> int:
        """Return the number of unpublished objects that were reserved more than `seconds` ago."""
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
    """Publish objects and return the bytes that count towards quotas; raise `ReservationLost` if a row is gone."""
    sql = f"UPDATE objects SET unpublished = NULL, size = :size WHERE {_UNPUBLISHED}"
    total = 0
    for each in sorted(own, key=lambda each: each.id):
        if tx.run(sql, space=space, id=each.id, size=each.size) != 1:
            raise ReservationLost
        total += each.size or 0
    return total


def release_objects(tx: Transaction, space: str, objects: Iterable[int]) -> None:
    """Mark objects that lost a reference as due; the collector then examines them."""
    sql = "UPDATE objects SET due = :now WHERE space = :space AND id = :id AND unpublished IS NULL"
    tx.many(sql, [{"now": tx.now, "space": space, "id": id} for id in sorted(objects)])

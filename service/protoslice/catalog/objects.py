"""Objects of the storage: reserved by writers, published with what refers to them, and trashed when nothing does.

An object has no state. While its row exists, a foreign key may refer to it; a later reference raises
`ForeignKeyViolation`. A writer reserves rows before it writes bytes, so bytes without a row do not occur.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.database import SECOND, Database, Transaction
from protoslice.errors import Conflict

LEASE_SECONDS: Final = 600.0
"""Seconds for which the objects of a writer are safe after its last renewal."""
LARGEST_SUMLESS: Final = 16 << 20
"""Bytes of the largest object whose checksums are in manifests; a larger one has an object for its checksums."""
_CHANGE: Final = 1_798_761_600_000
"""2027-01-01 in milliseconds since the epoch: ids before it have 22 random bits, which 63 bits hold until 2039; later
ones have 20, until 2077. An id has to be larger than all older ones."""


class Collected(Conflict):
    """Garbage collection removed objects of an upload before the upload was complete."""

    def __init__(self) -> None:
        super().__init__(
            "Data of this upload was deleted before the upload was complete, because the service paused for too long "
            "or a store that it shares data with was removed: nothing was stored, send it again"
        )


class ReservationLost(Collected):
    """Objects that this process had reserved are gone, and perhaps all that it reserved."""


@dataclass(frozen=True, slots=True)
class ReservedObject:
    """Row of an object that is about to be written, and the writer that reserved it."""

    id: int
    key: str
    writer: str


@dataclass(frozen=True, slots=True)
class OwnObject:
    """Object that a writer has written; without a `size` it does not count for quotas."""

    id: int
    size: int | None
    writer: str


class _Ids:
    """Ids of this process: those of one millisecond follow a random one, so that they seldom meet those of others."""

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
    """Return an id that sorts behind older ones, to a millisecond; another process may return the same one, seldom."""
    return _ids.new()


def new_objects(writer: str, count: int) -> list[ReservedObject]:
    """Return objects under random keys, which are never used again.

    They share a folder: a directory makes and syncs it once for all of them.
    """
    folder, ids = secrets.token_hex(1), [new_id() for _ in range(count)]
    return [ReservedObject(id, f"objects/{folder}/{id:x}-{secrets.token_hex(15)}", writer) for id in ids]


def object_id(key: str) -> int:
    """Return the id of the object at a key that `new_objects` made."""
    return int(key.rpartition("/")[2].partition("-")[0], 16)


class WriterTable:
    """Writers, which are processes, and the objects that they have reserved."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, space: str, objects: Sequence[ReservedObject], *, new: bool) -> bool:
        """Insert objects of one writer and renew its lease; with `new`, insert the writer too.

        Return False, with nothing inserted, if the lease has ended.
        """

        def work(tx: Transaction) -> bool:
            if new:
                sql = "INSERT INTO writers (id, expires) VALUES (:id, :expires)"
                tx.run(sql, id=objects[0].writer, expires=_end(tx))
            elif not _renew(tx, objects[0].writer):
                return False
            tx.many(
                "INSERT INTO objects (space, id, key, writer) VALUES (:space, :id, :key, :writer)",
                [{"space": space, "id": each.id, "key": each.key, "writer": each.writer} for each in objects],
            )
            return True

        return await self._database.write(work)

    async def renew(self, writer: str) -> bool:
        """Renew a lease; return False if it has ended."""
        return await self._database.write(lambda tx: _renew(tx, writer), background=True)

    async def drop(self, space: str, objects: Iterable[ReservedObject]) -> None:
        """Leave objects that were written in vain to the collector; those published meanwhile stay."""
        rows = [{"space": space, "id": each.id, "writer": each.writer} for each in objects]

        def work(tx: Transaction, limit: int) -> int:
            sql = "UPDATE objects SET writer = NULL, due = :now WHERE space = :space AND id = :id AND writer = :writer"
            tx.many(sql, [row | {"now": tx.now} for row in rows[:limit]])
            return min(limit, len(rows))

        async for done in self._database.write_in_batches(work):
            del rows[:done]

    async def end(self, writer: str, unused: Collection[tuple[str, ReservedObject]]) -> None:
        """Delete a writer and its `unused` objects (space, object), and leave all others to the collector."""
        rows = [{"space": space, "id": each.id, "writer": each.writer} for space, each in unused]

        def work(tx: Transaction, limit: int) -> int:
            tx.many("DELETE FROM objects WHERE space = :space AND id = :id AND writer = :writer", rows[:limit])
            if len(rows) <= limit:
                tx.run("UPDATE writers SET expires = 0 WHERE id = :writer", writer=writer)
            return min(limit, len(rows))

        async for done in self._database.write_in_batches(work):
            del rows[:done]
        await release_writers(self._database)


async def release_writers(database: Database) -> None:
    """Leave the objects of writers that have ended to the collector, and delete these writers.

    A writer ends when `expires` becomes 0; it reserves nothing afterwards, and its lease cannot be renewed.
    """

    def work(tx: Transaction, limit: int) -> int:
        done = 0
        for (writer,) in tx.all("SELECT id FROM writers WHERE expires = 0 LIMIT :limit", limit=limit):
            if done < limit:
                done += tx.run(
                    """
                    UPDATE objects SET writer = NULL, due = :now WHERE writer = :writer AND (space, id) IN (
                        SELECT space, id FROM objects WHERE writer = :writer LIMIT :rest
                    )""",
                    now=tx.now, writer=writer, rest=limit - done,
                )  # fmt: skip
                done += tx.run(
                    """
                    DELETE FROM writers WHERE id = :writer
                    AND NOT EXISTS (SELECT 1 FROM objects WHERE writer = :writer)""",
                    writer=writer,
                )
        return done

    async for _ in database.write_in_batches(work):
        pass


def publish_objects(tx: Transaction, space: str, own: Iterable[OwnObject]) -> int:
    """Take objects over from their writers and return the bytes that count; raise `Collected` if a lease has ended."""
    sql = """
        UPDATE objects SET writer = NULL, due = NULL, size = :size
        WHERE space = :space AND id = :id AND writer = :writer"""
    total = 0
    for each in sorted(own, key=lambda each: each.id):
        if tx.run(sql, space=space, id=each.id, size=each.size, writer=each.writer) != 1:
            raise ReservationLost
        total += each.size or 0
    return total


def release_objects(tx: Transaction, space: str, objects: Iterable[int]) -> None:
    """Let the collector look at objects to which a reference has gone."""
    sql = "UPDATE objects SET due = :now WHERE space = :space AND id = :id AND writer IS NULL"
    tx.many(sql, [{"now": tx.now, "space": space, "id": id} for id in sorted(objects)])


def _renew(tx: Transaction, writer: str) -> bool:
    sql = "UPDATE writers SET expires = :expires, doubted = NULL WHERE id = :id AND expires > 0"
    return tx.run(sql, id=writer, expires=_end(tx)) == 1


def _end(tx: Transaction) -> int:
    return tx.now + int(LEASE_SECONDS * SECOND)

"""The collector, which deletes objects that nothing refers to: first their rows, and their bytes some time later.

The collector needs no scan of the storage. An object becomes `due` when it loses a reference, or when it is still
unpublished a day after its reservation. Any number of collectors may run at once. They delete no bytes while a backup
or a check holds the lock (`Hold`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from protoslice.catalog.objects import LARGEST_SUMLESS, release_objects
from protoslice.catalog.spaces import discharge
from protoslice.catalog.uploads import expire_uploads, purge_uploads, release_uploads
from protoslice.concurrency.chores import run_all
from protoslice.database.transactions import SECOND, Database, Row, Transaction
from protoslice.errors import Conflict, DatabaseUnavailable

HOLD_SECONDS: Final = 300.0
"""Seconds for which a hold lasts after each renewal; no bytes are deleted in this time."""


class Hold:
    """A lock of a backup or check. While it is held, no bytes are deleted, and no other backup or check can start."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Hold:
        sql = "INSERT INTO holds (id, owner, expires) VALUES ('backup', :owner, :expires) ON CONFLICT DO NOTHING"

        def work(tx: Transaction) -> int:
            far = tx.now + int(2 * HOLD_SECONDS * SECOND)  # a hold that ends later was written with a wrong clock
            tx.run("DELETE FROM holds WHERE expires < :now OR expires > :far", now=tx.now, far=far)
            return tx.run(sql, owner=self._owner, expires=_end(tx))

        if not await self._database.write(work, background=True):
            raise Conflict(
                "Another backup or check is running: try again when it ends. If it was killed, wait "
                f"{HOLD_SECONDS / 60:.0f} minutes"
            )
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        sql = "DELETE FROM holds WHERE owner = :owner"
        await self._database.write(lambda tx: tx.run(sql, owner=self._owner), background=True)

    def check(self) -> None:
        """Raise an error if the hold is lost, since bytes may then have been deleted."""
        if self._renewing is not None and self._renewing.done():
            self._renewing.result()

    async def _renew(self) -> None:
        """Renew the hold without end; raise `Conflict` if the hold has expired."""
        sql = "UPDATE holds SET expires = :expires WHERE owner = :owner AND expires > :now"
        while True:
            await asyncio.sleep(HOLD_SECONDS / 10)
            with suppress(DatabaseUnavailable):  # the next renewal may still be in time
                if not await self._database.write(
                    lambda tx: tx.run(sql, expires=_end(tx), owner=self._owner, now=tx.now), background=True
                ):
                    raise Conflict(
                        "The backup was interrupted too long, so some of its data may be deleted: start it again"
                    )


def _end(tx: Transaction) -> int:
    return tx.now + int(HOLD_SECONDS * SECOND)


TWICE_SECONDS: Final = 86_400.0
"""Seconds after which the bytes of an object that was never published are deleted a second time."""
_OF_STORES: Final = {
    "store_objects": "object",
    "derived": "name",
    "file_digests": "sha256, n",
    "pieces": "digest",
}
"""Tables whose rows refer to stores, each with the columns that distinguish the rows of one store."""
_CLAIM_SECONDS: Final = 600.0
"""Seconds for which trash rows are reserved for the collector that has read them."""


@dataclass(frozen=True, slots=True)
class TrashRow:
    """An object in the trash, whose bytes are to be deleted; if `sums` is True, its checksums are to be deleted too."""

    number: int
    key: str
    sums: bool
    passes: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of objects whose rows were deleted, and the number of their bytes that counted in the usage."""

    objects: int = 0
    stored_bytes: int = 0


class CollectorTable:
    """All rows that are to be collected, in all spaces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def expire_objects(self, unfinished_seconds: float) -> None:
        """Mark objects as due that are still unpublished `unfinished_seconds` after their reservation.

        The uploads that use these objects fail.
        """
        unfinished = int(unfinished_seconds * SECOND)

        def work(tx: Transaction, limit: int) -> int:
            return tx.run(
                """
                UPDATE objects SET unpublished = NULL, due = :now WHERE unpublished <= :before AND (space, id) IN (
                    SELECT space, id FROM objects WHERE unpublished <= :before ORDER BY unpublished LIMIT :limit
                )""",
                now=tx.now, before=tx.now - unfinished, limit=limit,
            )  # fmt: skip

        await self._in_batches(work)

    async def expire_uploads(self) -> None:
        """End the uploads that have expired, and release their objects."""
        await run_all([partial(self._in_batches, expire_uploads), partial(release_uploads, self._database)])

    async def purge_uploads(self, grace_seconds: float) -> None:
        """Delete the rows of uploads whose grace period has ended."""
        grace = int(grace_seconds * SECOND)
        await self._in_batches(lambda tx, limit: purge_uploads(tx, tx.now - grace, limit))

    async def purge_stores(self, grace_seconds: float) -> int:
        """Delete the stores whose grace period has ended, with all their rows; return the number of stores.

        The stores are first marked with 0 in the column `deleted`; from then on, they can no longer be restored.
        """
        grace = int(grace_seconds * SECOND)

        def mark(tx: Transaction, limit: int) -> int:
            return tx.run(
                """
                UPDATE stores SET deleted = 0 WHERE deleted > 0 AND deleted < :before AND (space, id) IN (
                    SELECT space, id FROM stores WHERE deleted > 0 AND deleted < :before ORDER BY deleted LIMIT :limit
                )""",
                before=tx.now - grace, limit=limit,
            )  # fmt: skip

        total = 0

        async def mark_all() -> None:
            nonlocal total
            total = await self._in_batches(mark)

        await run_all([mark_all, partial(self._in_batches, _purge)])
        return total

    async def drop_objects(self, delay_seconds: float) -> Dropped:
        """Move due objects without references into the trash; their bytes can be deleted after `delay_seconds`."""
        objects, size = 0, 0
        async for dropped in self._database.write_in_batches(lambda tx, limit: _drop(tx, delay_seconds, limit)):
            assert dropped is not None
            objects, size = objects + dropped.objects, size + dropped.stored_bytes
        return Dropped(objects, size)

    async def trash(self) -> AsyncIterator[list[TrashRow]]:
        """Yield batches of trash rows whose bytes the caller must delete now.

        For ten minutes, no other collector gets the same rows. While a backup or check holds the lock, yield nothing.
        """

        def work(tx: Transaction, limit: int) -> list[TrashRow]:
            rows = tx.all(
                """
                UPDATE trash SET due = :later WHERE number IN (
                    SELECT number FROM trash WHERE due <= :now AND NOT EXISTS (
                        SELECT 1 FROM holds WHERE expires > :now AND expires < :far
                    ) ORDER BY due LIMIT :limit FOR UPDATE SKIP LOCKED
                ) RETURNING number, key, sums, passes""",
                later=tx.now + int(_CLAIM_SECONDS * SECOND), now=tx.now, limit=limit,
                far=tx.now + int(2 * HOLD_SECONDS * SECOND),
            )  # fmt: skip
            return [TrashRow(number, key, bool(sums), passes) for number, key, sums, passes in rows]

        sql = "SELECT 1 FROM trash WHERE due <= :now LIMIT 1"
        if await self._database.read(lambda tx: tx.first(sql, now=tx.now), background=True) is not None:
            async for rows in self._database.write_in_batches(work):
                yield rows

    async def waiting(self) -> Dropped:
        """Return the number and size of the objects in the trash, whose bytes are not deleted yet."""
        sql = "SELECT count(*), coalesce(sum(size), 0) FROM trash"
        objects, size = (await self._database.read(lambda tx: tx.all(sql), background=True))[0]
        return Dropped(objects, int(size))

    async def deleted(self, rows: list[TrashRow]) -> None:
        """Record that the bytes of `rows` were deleted.

        If an object was never published, its bytes are deleted a second time, a day later.
        """
        left = list(rows)

        def work(tx: Transaction, limit: int) -> int:
            batch = left[:limit]
            last = [{"number": row.number} for row in batch if row.passes <= 1]
            tx.many("DELETE FROM trash WHERE number = :number", last)
            again = [row.number for row in batch if row.passes > 1]
            due = tx.now + int(TWICE_SECONDS * SECOND)
            sql = "UPDATE trash SET passes = passes - 1, due = :due WHERE number = :number"
            tx.many(sql, [{"number": number, "due": due} for number in again])
            return len(batch)

        async for done in self._database.write_in_batches(work):
            del left[:done]

    async def _in_batches(self, step: Callable[[Transaction, int], int]) -> int:
        return sum([count async for count in self._database.write_in_batches(step)])


def _purge(tx: Transaction, limit: int) -> int:
    """Delete at most `limit` rows of marked stores, and return the number of deleted rows.

    The rows that refer to a store are deleted before the store's own row.
    """
    done, gone = 0, list[tuple[str, int]]()
    found = tx.all(
        "SELECT space, id, held FROM stores WHERE deleted = 0 LIMIT :limit FOR UPDATE SKIP LOCKED", limit=limit
    )
    for space, id, held in found:
        rows, _ = purge_store(tx, space, id, limit - done)
        done += rows
        if done >= limit:
            break
        tx.run("DELETE FROM stores WHERE space = :space AND id = :id", space=space, id=id)
        gone.append((space, held))
        done += 1
    discharge(tx, gone)
    return done


def purge_store(tx: Transaction, space: str, id: int, limit: int) -> tuple[int, list[int]]:
    """Delete at most `limit` rows that refer to a marked store.

    Return the number of rows, and the ids of the objects that the rows referred to.
    """
    key, done, objects = {"space": space, "id": id}, 0, list[int]()
    for table, columns in _OF_STORES.items():
        these = f"{table} WHERE space = :space AND store = :id"
        picked = f"({columns}) IN (SELECT {columns} FROM {these} LIMIT :rest)"
        object = "object" if table in {"store_objects", "derived"} else "NULL"
        rows = tx.all(f"DELETE FROM {these} AND {picked} RETURNING {object}", **key, rest=limit - done)
        objects += [each for (each,) in rows if each is not None]
        done += len(rows)
    files = "DELETE FROM names WHERE space = :space AND repository = 0 AND kind = 'files' AND name = :name"
    tx.run(files, space=space, name=str(id))
    release_objects(tx, space, objects)
    return done, objects


def _drop(tx: Transaction, delay_seconds: float, limit: int) -> Dropped | None:
    picked = tx.all(
        """
        SELECT space, id, key, size FROM objects WHERE due <= :now
        ORDER BY due LIMIT :most FOR UPDATE SKIP LOCKED""",
        now=tx.now,
        most=limit,
    )
    return drop_these(tx, picked, delay_seconds) if picked else None


def drop_these(tx: Transaction, picked: list[Row], delay_seconds: float) -> Dropped:
    """Move the objects without references into the trash; `picked` has locked rows (space, id, key, size)."""
    # The locks are already held: this statement sees the references that were inserted while the locks were awaited.
    held = _referenced(tx, picked)
    free = [row for row in picked if (row[0], row[1]) not in held]
    due = tx.now + int(delay_seconds * SECOND)
    tx.many(
        "INSERT INTO trash (key, sums, passes, due, size) VALUES (:key, :sums, :passes, :due, :size)",
        [
            {
                "key": key,
                "sums": int(size is None or size > LARGEST_SUMLESS),
                "passes": 2 if size is None else 1,
                "due": due,
                "size": size or 0,
            }
            for _, _, key, size in free
        ],
    )
    tx.many(
        "DELETE FROM objects WHERE space = :space AND id = :id", [{"space": space, "id": id} for space, id, *_ in free]
    )
    tx.many(
        "UPDATE objects SET due = NULL WHERE space = :space AND id = :id",
        [{"space": space, "id": id} for space, id in held],
    )
    sizes = [(space, size or 0) for space, _, _, size in free]
    discharge(tx, sizes)
    return Dropped(len(free), sum(size for _, size in sizes))


def _referenced(tx: Transaction, picked: list[Row]) -> set[tuple[str, int]]:
    """Return the objects that have a reference."""
    by_space: Mapping[str, list[int]] = {space: [row[1] for row in picked if row[0] == space] for space, *_ in picked}
    found = set[tuple[str, int]]()
    for space, ids in by_space.items():
        for table in ("store_objects", "upload_objects", "derived"):
            sql = f"SELECT DISTINCT object FROM {table} WHERE space = :space AND object IN {{listed}}"
            found |= {(space, id) for (id,) in tx.among(sql, ids, space=space)}
    return found

"""Collector of objects that nothing refers to: it deletes their rows first, and their bytes some time later.

It needs no scan: an object is `due` when it loses a reference, and when it has not been published a day after its
reservation. Any number of collectors may run. While a backup or a check holds the lock (`Hold`), no bytes are deleted.
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
"""Seconds for which no bytes are deleted after a hold was renewed."""


class Hold:
    """Lock that keeps bytes from being deleted while a backup is made, and other backups from starting."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Hold:
        sql = "INSERT INTO holds (id, owner, expires) VALUES ('backup', :owner, :expires) ON CONFLICT DO NOTHING"

        def work(tx: Transaction) -> int:
            far = tx.now + int(2 * HOLD_SECONDS * SECOND)  # of a clock that was ahead
            tx.run("DELETE FROM holds WHERE expires < :now OR expires > :far", now=tx.now, far=far)
            return tx.run(sql, owner=self._owner, expires=_end(tx))

        if not await self._database.write(work, background=True):
            raise Conflict(
                f"Another backup or check is running: try again when it has ended, or after {HOLD_SECONDS / 60:.0f} "
                "minutes if it was killed"
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
        """Raise if the hold is lost: bytes may have been deleted."""
        if self._renewing is not None and self._renewing.done():
            self._renewing.result()

    async def _renew(self) -> None:
        """Renew the hold without end; raise `Conflict` if it has expired."""
        sql = "UPDATE holds SET expires = :expires WHERE owner = :owner AND expires > :now"
        while True:
            await asyncio.sleep(HOLD_SECONDS / 10)
            with suppress(DatabaseUnavailable):  # the next renewal may be in time
                if not await self._database.write(
                    lambda tx: tx.run(sql, expires=_end(tx), owner=self._owner, now=tx.now), background=True
                ):
                    raise Conflict("The backup was interrupted for too long, and data may be deleted: start it again")


def _end(tx: Transaction) -> int:
    return tx.now + int(HOLD_SECONDS * SECOND)


TWICE_SECONDS: Final = 86_400.0
"""Seconds after which the bytes of an object that was never published are deleted once more."""
_OF_STORES: Final = {
    "store_objects": "object",
    "derived": "name",
    "file_digests": "sha256, n",
    "pieces": "digest",
}
"""Tables whose rows refer to stores, and the columns that tell the rows of one store apart."""
_CLAIM_SECONDS: Final = 600.0
"""Seconds for which one collector has the trash that it takes out to itself."""


@dataclass(frozen=True, slots=True)
class TrashRow:
    """Bytes to be deleted, with their checksums."""

    number: int
    key: str
    sums: bool
    passes: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows of objects that were deleted, and their bytes in the usage."""

    objects: int = 0
    stored_bytes: int = 0


class CollectorTable:
    """Everything that is to be collected, in all spaces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def expire_objects(self, unfinished_seconds: float) -> None:
        """Mark objects as due that were reserved long ago and are still unpublished; their uploads fail."""
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
        """End expired uploads, and release their objects."""
        await run_all([partial(self._in_batches, expire_uploads), partial(release_uploads, self._database)])

    async def purge_uploads(self, grace_seconds: float) -> None:
        """Delete the rows of uploads that ended before the grace period."""
        grace = int(grace_seconds * SECOND)
        await self._in_batches(lambda tx, limit: purge_uploads(tx, tx.now - grace, limit))

    async def purge_stores(self, grace_seconds: float) -> int:
        """Delete stores that were removed before the grace period, with all their rows; return how many.

        The stores are marked first, with 0 in `deleted`, and can then no longer be restored.
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
        """Move due objects to which nothing refers into the trash, for `delay_seconds`."""
        objects, size = 0, 0
        async for dropped in self._database.write_in_batches(lambda tx, limit: _drop(tx, delay_seconds, limit)):
            assert dropped is not None
            objects, size = objects + dropped.objects, size + dropped.stored_bytes
        return Dropped(objects, size)

    async def trash(self) -> AsyncIterator[list[TrashRow]]:
        """Yield batches of bytes to delete now; no other collector gets these for some minutes.

        While a backup holds these bytes, nothing is yielded.
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
        """Return the objects whose bytes are still to be deleted."""
        sql = "SELECT count(*), coalesce(sum(size), 0) FROM trash"
        objects, size = (await self._database.read(lambda tx: tx.all(sql), background=True))[0]
        return Dropped(objects, int(size))

    async def deleted(self, rows: list[TrashRow]) -> None:
        """Record that bytes were deleted; some bytes are deleted once more, a day later."""
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
    """Delete at most `limit` rows of marked stores, after the rows that refer to them; return how many."""
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
    """Delete at most `limit` rows that refer to a marked store; return how many, and the objects of that store."""
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
    """Move all locked objects (space, id, key, size) to which nothing refers into the trash."""
    # A second statement sees the references that were inserted while the first one waited for the locks.
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
    """Return the objects that something refers to."""
    by_space: Mapping[str, list[int]] = {space: [row[1] for row in picked if row[0] == space] for space, *_ in picked}
    found = set[tuple[str, int]]()
    for space, ids in by_space.items():
        for table in ("store_objects", "upload_objects", "derived"):
            sql = f"SELECT DISTINCT object FROM {table} WHERE space = :space AND object IN {{listed}}"
            found |= {(space, id) for (id,) in tx.among(sql, ids, space=space)}
    return found

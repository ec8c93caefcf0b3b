"""Collector of objects that nothing refers to: rows go first, and their bytes some time after.

Nothing here has to be asked for: an object to which a reference goes is `due`, and so are those of a writer whose lease
has ended. Any number of collectors may run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.database import SECOND, Database, Row, Transaction
from protoslice.catalog.holds import HOLD_SECONDS
from protoslice.catalog.objects import LARGEST_SUMLESS, end_writer, release_objects
from protoslice.catalog.spaces import discharge
from protoslice.catalog.uploads import end_uploads, forget_uploads

DOUBT_SECONDS: Final = 120.0
"""Seconds for which a lease that has ended is doubted: longer than a writer takes to renew it."""
TWICE_SECONDS: Final = 86_400.0
"""Seconds after which the bytes of an object that was never published are deleted once more."""
_BATCH: Final = 500
_STORES: Final = 5
_CLAIM_SECONDS: Final = 600.0
"""Seconds for which one collector has the trash that it takes out to itself."""


@dataclass(frozen=True, slots=True)
class TrashRow:
    """Bytes to be deleted, and those of their checksums."""

    number: int
    key: str
    sums: bool
    passes: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows of objects that were deleted, and the bytes that they counted."""

    objects: int = 0
    stored_bytes: int = 0
    looked_at: int = 0


class CollectorTable:
    """What is to be collected in all spaces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def end_writers(self) -> None:
        """Leave the objects of writers to the collector whose leases have ended for some time."""

        def work(tx: Transaction) -> None:
            ended = """
                SELECT id, doubted FROM writers WHERE expires < :now
                ORDER BY expires LIMIT :most FOR UPDATE SKIP LOCKED"""
            before = tx.now - int(DOUBT_SECONDS * SECOND)
            for id, doubted in tx.all(ended, now=tx.now, most=_BATCH):
                if doubted is None:
                    tx.run("UPDATE writers SET doubted = :now WHERE id = :id", now=tx.now, id=id)
                elif doubted < before:
                    end_writer(tx, id)

        await self._database.write(work, background=True)

    async def end_uploads(self, grace_seconds: float) -> None:
        """End expired uploads, and delete the rows of those that ended before the grace."""
        while await self._database.write(lambda tx: end_uploads(tx, _BATCH), background=True) == _BATCH:
            pass
        grace = int(grace_seconds * SECOND)
        while (
            await self._database.write(lambda tx: forget_uploads(tx, tx.now - grace, _BATCH), background=True) == _BATCH
        ):
            pass

    async def purge_stores(self, grace_seconds: float) -> int:
        """Delete the rows of stores that were removed before the grace; return how many."""
        total = 0
        while purged := await self._database.write(lambda tx: _purge(tx, grace_seconds), background=True):
            total += purged
        return total

    async def drop_objects(self, delay_seconds: float) -> Dropped:
        """Move due objects, to which nothing refers, into the trash for `delay_seconds`."""
        objects, size = 0, 0
        while True:
            dropped = await self._database.write(lambda tx: _drop(tx, delay_seconds), background=True)
            objects, size = objects + dropped.objects, size + dropped.stored_bytes
            if not dropped.looked_at:
                return Dropped(objects, size)

    async def trash(self) -> list[TrashRow]:
        """Return bytes that are to be deleted now, which no other collector gets for some minutes.

        There are none while a backup holds them.
        """

        def work(tx: Transaction) -> list[TrashRow]:
            rows = tx.all(
                """
                UPDATE trash SET due = :later WHERE number IN (
                    SELECT number FROM trash WHERE due <= :now AND NOT EXISTS (
                        SELECT 1 FROM holds WHERE expires > :now AND expires < :far
                    ) ORDER BY due LIMIT :most FOR UPDATE SKIP LOCKED
                ) RETURNING number, key, sums, passes""",
                later=tx.now + int(_CLAIM_SECONDS * SECOND), now=tx.now, most=_BATCH,
                far=tx.now + int(2 * HOLD_SECONDS * SECOND),
            )  # fmt: skip
            return [TrashRow(number, key, bool(sums), passes) for number, key, sums, passes in rows]

        sql = "SELECT 1 FROM trash WHERE due <= :now LIMIT 1"
        if await self._database.read(lambda tx: tx.first(sql, now=tx.now), background=True) is None:
            return []
        return await self._database.write(work, background=True)

    async def deleted(self, rows: list[TrashRow]) -> None:
        """Note that bytes were deleted; some are deleted once more, a day later."""

        def work(tx: Transaction) -> None:
            last = [{"number": row.number} for row in rows if row.passes <= 1]
            tx.many("DELETE FROM trash WHERE number = :number", last)
            again = [row.number for row in rows if row.passes > 1]
            due = tx.now + int(TWICE_SECONDS * SECOND)
            sql = "UPDATE trash SET passes = passes - 1, due = :due WHERE number = :number"
            tx.many(sql, [{"number": number, "due": due} for number in again])

        await self._database.write(work, background=True)

    async def would_drop(self, grace_seconds: float, space: str | None = None) -> tuple[int, Dropped]:
        """Return how many stores would be purged, and which objects would be dropped, in one space or in all."""
        # Not a plain comparison, for which SQLite would use the index of the space.
        one = "" if space is None else "AND {0}.space || '' = :space"
        purged = f"s.deleted IS NOT NULL AND s.deleted < :before {one.format('s')}"
        sql = f"""
            WITH candidates (space, id) AS (
                SELECT o.space, o.id FROM objects o WHERE o.due <= :now {one.format("o")} UNION
                SELECT r.space, r.object FROM stores s JOIN store_objects r ON r.space = s.space AND r.store = s.id
                WHERE {purged} UNION
                SELECT r.space, r.object FROM uploads u
                JOIN upload_objects r ON r.space = u.space AND r.upload = u.id
                WHERE u.state <> 'gone' AND u.expires < :now {one.format("u")}
            )
            SELECT count(*), coalesce(sum(o.size), 0) FROM candidates c
            JOIN objects o ON o.space = c.space AND o.id = c.id
            WHERE NOT EXISTS (
                SELECT 1 FROM store_objects r JOIN stores s ON s.space = r.space AND s.id = r.store
                WHERE r.space = o.space AND r.object = o.id AND (s.deleted IS NULL OR s.deleted >= :before)
            ) AND NOT EXISTS (
                SELECT 1 FROM upload_objects r JOIN uploads u ON u.space = r.space AND u.id = r.upload
                WHERE r.space = o.space AND r.object = o.id AND u.expires >= :now
            ) AND NOT EXISTS (
                SELECT 1 FROM derived r JOIN stores s ON s.space = r.space AND s.id = r.store
                WHERE r.space = o.space AND r.object = o.id AND (s.deleted IS NULL OR s.deleted >= :before)
            )"""

        def work(tx: Transaction) -> tuple[int, Dropped]:
            values = {"now": tx.now, "before": tx.now - int(grace_seconds * SECOND), "space": space}
            stores = tx.all(f"SELECT count(*) FROM stores s WHERE {purged}", **values)[0][0]
            objects, size = tx.all(sql, **values)[0]
            return int(stores), Dropped(int(objects), int(size))

        return await self._database.export(work)  # it may read many rows


def _purge(tx: Transaction, grace_seconds: float) -> int:
    before = tx.now - int(grace_seconds * SECOND)
    found = tx.all(
        """
        SELECT space, id, held FROM stores WHERE deleted < :before
        ORDER BY deleted LIMIT :most FOR UPDATE SKIP LOCKED""",
        before=before,
        most=_STORES,
    )
    for space, id, _ in found:
        key = {"space": space, "id": id}
        objects = tx.all(
            """
            SELECT object FROM store_objects WHERE space = :space AND store = :id UNION
            SELECT object FROM derived WHERE space = :space AND store = :id AND object IS NOT NULL""",
            **key,
        )
        tx.run("DELETE FROM stores WHERE space = :space AND id = :id AND deleted IS NOT NULL", **key)
        release_objects(tx, space, [object for (object,) in objects])
    discharge(tx, ((space, size) for space, _, size in found))
    return len(found)


def _drop(tx: Transaction, delay_seconds: float) -> Dropped:
    picked = tx.all(
        """
        SELECT space, id, key, size FROM objects WHERE due <= :now
        ORDER BY due LIMIT :most FOR UPDATE SKIP LOCKED""",
        now=tx.now,
        most=_BATCH,
    )
    # A second statement sees the references that were inserted while this one waited for the locks.
    held = _referenced(tx, picked)
    free = [row for row in picked if (row[0], row[1]) not in held]
    due = tx.now + int(delay_seconds * SECOND)
    tx.many(
        "INSERT INTO trash (key, sums, passes, due) VALUES (:key, :sums, :passes, :due)",
        [
            {
                "key": key,
                "sums": int(size is None or size > LARGEST_SUMLESS),
                "passes": 2 if size is None else 1,
                "due": due,
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
    return Dropped(len(free), sum(size for _, size in sizes), len(picked))


def _referenced(tx: Transaction, picked: list[Row]) -> set[tuple[str, int]]:
    """Return those objects that something refers to."""
    by_space: Mapping[str, list[int]] = {space: [row[1] for row in picked if row[0] == space] for space, *_ in picked}
    found = set[tuple[str, int]]()
    for space, ids in by_space.items():
        for table in ("store_objects", "upload_objects", "derived"):
            sql = f"SELECT DISTINCT object FROM {table} WHERE space = :space AND object IN {{listed}}"
            found |= {(space, id) for (id,) in tx.among(sql, ids, space=space)}
    return found

"""Resumable uploads and their parts.

Every change of an upload raises its epoch and names the one that it saw, so a writer that was overtaken changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.catalog.database import SECOND, Database, Row, Transaction
from protoslice.errors import Conflict

_COLUMNS = "id, client, state, used, epoch, expires, record"
_BATCH = 1000


class Overtaken(Conflict):
    """The upload has another epoch, or is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRow:
    """A stored upload; times are in microseconds since the epoch, by the clock of the database."""

    id: str
    client: str
    state: str
    used: bool
    epoch: int = 0
    expires: int = 0
    record: str
    """All else that is known of the upload, for its owner."""
    parts: tuple[str, ...] = ()
    """Locations of its bytes, in order."""


class UploadTable:
    """Uploads of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def create(self, row: UploadRow, *, keep_seconds: float) -> UploadRow:
        """Insert an upload that expires after `keep_seconds`; return it with its time."""

        def work(tx: Transaction) -> UploadRow:
            return self._insert(tx, row, tx.now + int(keep_seconds * SECOND))

        return await self._database.write(work)

    async def get(self, id: str) -> tuple[UploadRow, bool] | None:
        """Return an upload, and True if it has not expired; None if there is none."""

        def work(tx: Transaction) -> tuple[UploadRow, bool] | None:
            row = tx.first(f"SELECT {_COLUMNS} FROM uploads WHERE space = :space AND id = :id", **self._key(id))
            return None if row is None else (self._whole(tx, row), row[5] >= tx.now)

        return await self._database.read(work)

    async def epoch(self, id: str) -> int | None:
        """Return the epoch of an upload that has not expired; None for any other."""
        sql = "SELECT epoch FROM uploads WHERE space = :space AND id = :id AND expires >= :now"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key(id), now=tx.now))
        return None if row is None else int(row[0])

    async def exists(self, id: str) -> bool:
        """Return True if there is an upload, however old."""
        sql = "SELECT 1 FROM uploads WHERE space = :space AND id = :id"
        return await self._database.read(lambda tx: tx.first(sql, **self._key(id))) is not None

    async def take(self, id: str) -> UploadRow | None:
        """Raise the epoch of an open upload, which stops its other writers; None unless it is open."""

        def work(tx: Transaction) -> UploadRow | None:
            row = tx.first(
                f"""
                UPDATE uploads SET epoch = epoch + 1
                WHERE space = :space AND id = :id AND state = 'open' AND expires >= :now RETURNING {_COLUMNS}""",
                **self._key(id),
                now=tx.now,
            )
            return None if row is None else self._whole(tx, row)

        return await self._database.write(work)

    async def change(self, row: UploadRow, *, kept_parts: int, keep_seconds: float | None) -> UploadRow:
        """Replace an upload that has the epoch of `row`, of whose parts the first `kept_parts` are stored already.

        It expires after `keep_seconds`, or else when `row` says. Raise `Overtaken` if it has another epoch.
        """

        def work(tx: Transaction) -> UploadRow:
            changed = tx.first(
                f"""
                UPDATE uploads SET state = :state, used = :used, epoch = epoch + 1, expires = :expires,
                    modified = :now, record = :record
                WHERE space = :space AND id = :id AND epoch = :epoch RETURNING {_COLUMNS}""",
                **self._key(row.id),
                state=row.state,
                used=int(row.used),
                epoch=row.epoch,
                expires=row.expires if keep_seconds is None else tx.now + int(keep_seconds * SECOND),
                now=tx.now,
                record=row.record,
            )
            if changed is None:
                raise Overtaken("The upload was changed meanwhile")
            tx.run(
                "DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n >= :n",
                **self._key(row.id),
                n=kept_parts,
            )
            self._add_parts(tx, row, kept_parts)
            return _row(changed, row.parts)

        return await self._database.write(work)

    async def open_by_client(self) -> dict[str, int]:
        """Return the number of open uploads that have not expired, by client."""
        sql = """
            SELECT client, count(*) FROM uploads
            WHERE space = :space AND state IN ('open', 'complete') AND used = 0 AND expires >= :now GROUP BY client"""
        return await self._database.read(lambda tx: dict(tx.all(sql, space=self._space, now=tx.now)))

    async def end(self, *, moment: float, before: float) -> None:
        """End uploads that expired before `moment`, and delete those that ended before `before`, in seconds."""
        values = {"space": self._space, "moment": int(moment * SECOND), "before": int(before * SECOND)}

        def work(tx: Transaction) -> int:
            expired = tx.all(
                """
                UPDATE uploads SET state = 'gone', epoch = epoch + 1, modified = :moment WHERE (space, id) IN (
                    SELECT space, id FROM uploads
                    WHERE space = :space AND state <> 'gone' AND expires < :moment LIMIT :most FOR UPDATE SKIP LOCKED
                ) RETURNING id""",
                space=self._space,
                moment=values["moment"],
                most=_BATCH,
            )
            tx.many(
                "DELETE FROM upload_parts WHERE space = :space AND upload = :id", [self._key(id) for (id,) in expired]
            )
            return len(expired)

        while await self._database.write(work, background=True) == _BATCH:
            pass
        gone = "DELETE FROM uploads WHERE space = :space AND state = 'gone' AND modified < :before"
        await self._database.write(lambda tx: tx.run(gone, space=self._space, before=values["before"]), background=True)

    async def page(self, after: str, limit: int, *, before: float) -> list[str]:
        """Return at most `limit` ids behind `after`, without uploads that ended before `before`, in seconds."""
        sql = """
            SELECT id FROM uploads WHERE space = :space AND id > :after AND NOT (state = 'gone' AND modified < :before)
            ORDER BY id LIMIT :limit"""
        values = {"space": self._space, "after": after, "limit": limit, "before": int(before * SECOND)}
        return await self._database.read(lambda tx: [row[0] for row in tx.all(sql, **values)], background=True)

    def _insert(self, tx: Transaction, row: UploadRow, expires: int) -> UploadRow:
        inserted = tx.first(
            f"""
            INSERT INTO uploads (space, {_COLUMNS}, modified)
            VALUES (:space, :id, :client, :state, :used, 0, :expires, :record, :now) RETURNING {_COLUMNS}""",
            **self._key(row.id),
            client=row.client,
            state=row.state,
            used=int(row.used),
            expires=expires,
            record=row.record,
            now=tx.now,
        )
        assert inserted is not None  # RETURNING gives the row that was inserted
        self._add_parts(tx, row, 0)
        return _row(inserted, row.parts)

    def _add_parts(self, tx: Transaction, row: UploadRow, first: int) -> None:
        tx.many(
            "INSERT INTO upload_parts (space, upload, n, location) VALUES (:space, :id, :n, :location)",
            [
                {**self._key(row.id), "n": n, "location": location}
                for n, location in enumerate(row.parts[first:], first)
            ],
        )

    def _whole(self, tx: Transaction, row: Row) -> UploadRow:
        sql = "SELECT location FROM upload_parts WHERE space = :space AND upload = :id ORDER BY n"
        return _row(row, [location for (location,) in tx.all(sql, **self._key(row[0]))])

    def _key(self, id: str) -> dict[str, str]:
        return {"space": self._space, "id": id}


def _row(row: Row, parts: Sequence[str]) -> UploadRow:
    id, client, state, used, epoch, expires, record = row
    return UploadRow(
        id=id,
        client=client,
        state=state,
        used=bool(used),
        epoch=epoch,
        expires=expires,
        record=record,
        parts=tuple(parts),
    )

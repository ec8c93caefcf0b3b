"""Resumable uploads and their parts.

Every change of an upload raises its epoch and names the one that it saw, so a writer that was overtaken changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.catalog.audit import require_space
from protoslice.catalog.objects import Collected, OwnObject, publish_objects, release_objects
from protoslice.catalog.spaces import Account
from protoslice.database.transactions import SECOND, Database, ForeignKeyViolation, Row, Transaction
from protoslice.errors import Conflict

_COLUMNS = "id, client, state, used, epoch, expires, record"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChanges:
    """Objects that an upload refers to from now on, and those that it refers to no longer."""

    own: Sequence[OwnObject] = ()
    """New ones that the sender has written."""
    shared: frozenset[int] = frozenset()
    """New ones that others have."""
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class XorbRow:
    """A xorb of a session."""

    size: int
    record: bytes


class UploadTable:
    """Uploads of one space."""

    def __init__(self, database: Database, account: Account) -> None:
        self._database = database
        self._account = account
        self._space = account.space

    async def create(self, row: UploadRow, *, keep_seconds: float) -> UploadRow:
        """Insert an upload that expires after `keep_seconds`; return it with its time."""

        def work(tx: Transaction) -> UploadRow:
            require_space(tx, self._space)
            inserted = tx.first(
                f"""
                INSERT INTO uploads (space, {_COLUMNS}, modified)
                VALUES (:space, :id, :client, :state, :used, 0, :expires, :record, :now) RETURNING {_COLUMNS}""",
                **self._key(row.id), client=row.client, state=row.state, used=int(row.used),
                expires=tx.now + int(keep_seconds * SECOND), record=row.record, now=tx.now,
            )  # fmt: skip
            assert inserted is not None  # RETURNING gives the row that was inserted
            self._add_parts(tx, row, 0)
            return _row(inserted, row.parts)

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

    async def change(
        self, row: UploadRow, *, kept_parts: int, keep_seconds: float | None, objects: ObjectChanges
    ) -> UploadRow:
        """Replace an upload that has the epoch of `row`, of whose parts the first `kept_parts` are stored already.

        It expires after `keep_seconds`, or else when `row` says. An upload that ends refers to no objects any more,
        whatever else has changed. Raise `Overtaken` if it has another epoch, `Collected` if an object that it needs is
        gone.
        """

        def work(tx: Transaction) -> UploadRow:
            changed = tx.first(
                f"""
                UPDATE uploads SET state = :state, used = :used, epoch = epoch + 1, expires = :expires,
                    modified = :modified, record = :record
                WHERE space = :space AND id = :id AND epoch = :epoch RETURNING {_COLUMNS}""",
                **self._key(row.id),
                state=row.state,
                used=int(row.used),
                epoch=row.epoch,
                expires=row.expires if keep_seconds is None else tx.now + int(keep_seconds * SECOND),
                modified=0 if row.state == "gone" else tx.now,
                record=row.record,
            )
            if changed is None:
                raise Overtaken("The upload was changed meanwhile")
            if row.state == "gone":
                return _row(changed, ())
            tx.run(
                "DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n >= :n",
                **self._key(row.id),
                n=kept_parts,
            )
            self._add_parts(tx, row, kept_parts)
            size = publish_objects(tx, self._space, objects.own)
            sql = "INSERT INTO upload_objects (space, upload, object) VALUES (:space, :id, :object)"
            new = sorted({*(each.id for each in objects.own), *objects.shared})
            tx.many(sql, [{**self._key(row.id), "object": each} for each in new])
            _refer_no_longer(tx, self._space, row.id, objects.gone)
            self._account.charge(tx, stored_bytes=size)
            return _row(changed, row.parts)

        try:
            done = await self._database.write(work)
        except ForeignKeyViolation:
            raise Collected from None
        if row.state == "gone":
            await release_uploads(self._database)
        return done

    async def open_by_client(self) -> dict[str, int]:
        """Return the number of open uploads that have not expired, by client."""
        sql = """
            SELECT client, count(*) FROM uploads
            WHERE space = :space AND state IN ('open', 'complete') AND used = 0 AND expires >= :now GROUP BY client"""
        return await self._database.read(lambda tx: dict(tx.all(sql, space=self._space, now=tx.now)))

    async def xorbs(self, id: str) -> dict[str, int]:
        """Return the sizes of the xorbs of a session by their names."""
        sql = "SELECT name, size FROM xorbs WHERE space = :space AND upload = :id"
        return await self._database.read(lambda tx: dict(tx.all(sql, **self._key(id))))

    async def xorb(self, id: str, name: str) -> XorbRow | None:
        """Return a xorb of a session, or None if it has not come."""
        sql = "SELECT size, record FROM xorbs WHERE space = :space AND upload = :id AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key(id), name=name))
        return None if row is None else XorbRow(row[0], bytes(row[1]))

    async def add_xorb(self, id: str, name: str, xorb: XorbRow, own: OwnObject) -> bool:
        """Insert a xorb and refer to its object; return False if it has come already.

        Raise `Overtaken` if the session is gone.
        """

        def work(tx: Transaction) -> bool:
            there = tx.first("SELECT state FROM uploads WHERE space = :space AND id = :id FOR UPDATE", **self._key(id))
            if there is None or there[0] == "gone":
                raise Overtaken("The session has ended")
            added = tx.run(
                """
                INSERT INTO xorbs (space, upload, name, size, record) VALUES (:space, :id, :name, :size, :record)
                ON CONFLICT DO NOTHING""",
                **self._key(id),
                name=name,
                size=xorb.size,
                record=xorb.record,
            )
            if not added:
                return False
            size = publish_objects(tx, self._space, [own])
            sql = "INSERT INTO upload_objects (space, upload, object) VALUES (:space, :id, :object)"
            tx.run(sql, **self._key(id), object=own.id)
            self._account.charge(tx, stored_bytes=size)
            return True

        return await self._database.write(work)

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


def end_uploads(tx: Transaction, limit: int) -> int:
    """End expired uploads of all spaces; return how many, at most `limit`."""
    return tx.run(
        """
        UPDATE uploads SET state = 'gone', epoch = epoch + 1, modified = 0 WHERE (space, id) IN (
            SELECT space, id FROM uploads WHERE state <> 'gone' AND expires < :now LIMIT :limit FOR UPDATE SKIP LOCKED
        )""",
        now=tx.now,
        limit=limit,
    )


async def release_uploads(database: Database) -> None:
    """Delete the references, parts and xorbs of uploads that have ended; until then, `modified` is 0."""

    def work(tx: Transaction, limit: int) -> int:
        sql = "SELECT space, id FROM uploads WHERE state = 'gone' AND modified = 0 LIMIT :limit"
        done = 0
        for space, id in tx.all(sql, limit=limit):
            if done < limit:
                done += _release(tx, space, id, limit - done)
        return done

    async for _ in database.write_in_batches(work):
        pass


def _release(tx: Transaction, space: str, upload: str, limit: int) -> int:
    key = {"space": space, "upload": upload}
    these = "WHERE space = :space AND upload = :upload"
    objects = tx.all(f"SELECT object FROM upload_objects {these} LIMIT :limit", **key, limit=limit)
    _refer_no_longer(tx, space, upload, frozenset(object for (object,) in objects))
    done = len(objects)
    for table, column in (("upload_parts", "n"), ("xorbs", "name")):
        rows = f"SELECT {column} FROM {table} {these} LIMIT :rest"
        done += tx.run(f"DELETE FROM {table} {these} AND {column} IN ({rows})", **key, rest=limit - done)
    others = " ".join(
        f"AND NOT EXISTS (SELECT 1 FROM {table} {these})" for table in ("upload_objects", "upload_parts", "xorbs")
    )
    sql = f"UPDATE uploads SET modified = :now WHERE space = :space AND id = :upload AND modified = 0 {others}"
    return done + tx.run(sql, **key, now=tx.now)


def forget_uploads(tx: Transaction, before: int, limit: int) -> int:
    """Delete uploads that ended before a time, at most `limit`; return how many."""
    sql = """
        DELETE FROM uploads WHERE (space, id) IN (
            SELECT space, id FROM uploads
            WHERE state = 'gone' AND modified > 0 AND modified < :before LIMIT :limit
        )"""
    return tx.run(sql, before=before, limit=limit)


def _refer_no_longer(tx: Transaction, space: str, upload: str, objects: frozenset[int]) -> None:
    sql = "DELETE FROM upload_objects WHERE space = :space AND upload = :upload AND object = :object"
    tx.many(sql, [{"space": space, "upload": upload, "object": each} for each in sorted(objects)])
    release_objects(tx, space, objects)


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

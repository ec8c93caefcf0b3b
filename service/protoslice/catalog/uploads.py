"""Resumable uploads and their parts; bytes count as uploaded only once their part is recorded.

Every change of an upload increases its epoch, and must name the epoch that the writer has read. A writer that another
writer has overtaken therefore changes nothing.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final, Literal, Self

from protoslice import errors
from protoslice.catalog.audit import require_space
from protoslice.catalog.manifest import ObjectLocation, stored_as_dict, stored_from_dict
from protoslice.catalog.new_objects import NewObjects
from protoslice.catalog.objects import Collected, OwnObject, object_id, publish_objects, release_objects
from protoslice.catalog.requests import IngestRequest
from protoslice.catalog.spaces import Usage
from protoslice.database.transactions import (
    SECOND,
    ConcurrentChange,
    Database,
    ForeignKeyViolation,
    Row,
    Transaction,
    microseconds,
    time_of,
)
from protoslice.errors import Gone, IntegrityError, NotFound, ProtosliceError

_COLUMNS: Final = "id, client, state, used, epoch, expires, record"
_APART: Final = ("id", "client", "state", "used", "epoch", "expires", "parts")
"""Fields of an upload that are not in the JSON record, since they have their own columns or rows."""
_ID: Final = re.compile(r"[0-9a-f]{10}-[0-9a-f]{20}")
_MOVED: Final = "Another request has sent data to this upload: ask for the upload's offset and continue there"
_NAMELESS: Final = "model.pb"

State = Literal["open", "complete", "stored", "failed", "gone"]
"""State of an upload.

A `complete` upload is a partial upload with all its bytes, which can be joined into another upload. A `gone` upload was
removed or has expired.
"""


@dataclass(frozen=True, slots=True)
class SavedInspection:
    """The saved state of an upload's inspection: an object at `key`, with a size of `bytes` bytes.

    The inspection has covered the first `after` bytes of the upload.
    """

    key: str
    after: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why no store was made from an upload."""

    kind: str
    message: str
    offset: int | None = None
    path: str | None = None

    @classmethod
    def of(cls, error: ProtosliceError) -> Self:
        """Convert an error to a failure, which can be stored."""
        return cls(type(error).__name__, error.message, error.offset, error.path)

    def error(self) -> ProtosliceError:
        """Rebuild the error; use `InvalidInput` if its kind is unknown."""
        kind: type[ProtosliceError] = getattr(errors, self.kind, errors.InvalidInput)
        return kind(self.message, self.offset, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload, which consists of immutable parts."""

    id: str
    path: str | None
    request: IngestRequest
    created: datetime
    expires: datetime
    length: int | None = None
    partial: bool = False
    joined: tuple[str, ...] = ()
    """Ids of the uploads that were joined into this upload."""
    sha256: str | None = None
    client_metadata: str = ""
    client: str = ""
    parts: tuple[ObjectLocation, ...] = ()
    saved: SavedInspection | None = None
    state: State = "open"
    store: str | None = None
    failure: Failure | None = None
    used: bool = False
    """True once a store was made with the upload's bytes; a `complete` upload then no longer counts as open."""
    epoch: int = field(default=0, compare=False)
    """Number of changes so far, which the next change must name."""

    @property
    def offset(self) -> int:
        """The number of durable bytes, which is the offset at which the client continues."""
        return sum(part.size for part in self.parts) if not self.joined else self.length or 0

    @property
    def object_ids(self) -> set[int]:
        """The ids of the objects that the upload needs."""
        saved = set() if self.saved is None else {object_id(self.saved.key)}
        return saved.union(*(part.object_ids for part in self.parts))

    @property
    def is_whole(self) -> bool:
        """True if all bytes are durable."""
        return self.offset == self.length

    @property
    def is_begun(self) -> bool:
        """True if the upload has bytes or is no longer open."""
        return self.offset > 0 or self.state != "open"

    @property
    def filename(self) -> str:
        """The path of the uploaded file in the store."""
        return self.path or _NAMELESS

    @property
    def wanted_type(self) -> str | None:
        """The requested type of the file; None if no type was requested, or if another file is the root."""
        return self.request.type if self.request.root in {None, self.filename} else None

    def encode(self) -> str:
        """Serialize to JSON the fields that have no separate columns or rows."""
        data: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in _APART:
            del data[name]
        data["request"] = {name: value for name, value in asdict(self.request).items() if value is not None}
        for name in ("saved", "failure"):
            data[name] = data[name] and asdict(data[name])
        data["created"] = self.created.isoformat()
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def decode(cls, row: Row, parts: Sequence[str]) -> Self:
        """Build an upload from its row and parts; raise `IntegrityError` if the record does not parse."""
        id, client, state, used, epoch, expires, record = row
        try:
            raw = json.loads(record)
            raw["request"] = IngestRequest(**_tuples(raw["request"]))
            raw["joined"] = tuple(raw["joined"])
            raw["saved"] = raw["saved"] and SavedInspection(**raw["saved"])
            raw["failure"] = raw["failure"] and Failure(**raw["failure"])
            raw["created"] = datetime.fromisoformat(raw["created"])
            return cls(
                **raw,
                id=id,
                client=client,
                state=state,
                used=bool(used),
                epoch=epoch,
                expires=time_of(expires),
                parts=tuple(stored_from_dict(json.loads(part)) for part in parts),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError("the record of an upload does not parse") from error


def _tuples(request: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a request with tuples instead of the lists that JSON yields."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in request.items()}


def new_upload_id() -> str:
    """Return a new id that cannot be guessed."""
    return f"{int(time.time()):010x}-{secrets.token_hex(10)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChanges:
    """The objects to which an upload begins to refer, and the objects to which it no longer refers."""

    own: Sequence[OwnObject] = ()
    """New objects that the publishing request has written."""
    shared: frozenset[int] = frozenset()
    """Ids of new objects to which other stores or uploads already refer."""
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class XorbRow:
    """A xorb that was uploaded in a session; a xorb is a container of chunks in Hugging Face's Xet protocol."""

    size: int
    record: bytes


class UploadTable:
    """The uploads in one space, either of one client or, if `client` is None, of all clients."""

    def __init__(self, database: Database, usage: Usage, client: str | None = None) -> None:
        self._database = database
        self._usage = usage
        self._space = usage.space
        self._client = client

    async def create(self, upload: Upload, *, keep_seconds: float) -> Upload:
        """Insert an upload that expires after `keep_seconds`; return the upload with its expiry time."""

        def work(tx: Transaction) -> Upload:
            require_space(tx, self._space)
            expires = tx.now + int(keep_seconds * SECOND)
            tx.run(
                f"""
                INSERT INTO uploads (space, {_COLUMNS}, modified)
                VALUES (:space, :id, :client, :state, :used, 0, :expires, :record, :now)""",
                **self._key(upload.id), client=upload.client, state=upload.state, used=int(upload.used),
                expires=expires, record=upload.encode(), now=tx.now,
            )  # fmt: skip
            self._add_parts(tx, upload, 0)
            return replace(upload, epoch=0, expires=time_of(expires))

        return await self._database.write(work)

    async def read(self, id: str) -> Upload:
        """Return an upload; raise `NotFound` if it does not exist, and `Gone` if it was removed or has expired."""
        upload, lasts = await self._read(id)
        if upload.state == "gone":
            raise Gone("This upload was removed or has expired: start a new one")
        if not lasts:
            raise Gone("This upload has expired: start a new one")
        return upload

    async def check(self, id: str) -> None:
        """Raise `NotFound` if the id is malformed or the upload belongs to another client.

        If no client is set, only the form of the id is checked.
        """
        if self._client is not None or not _ID.fullmatch(id):
            await self._read(id)

    async def again(self, upload: Upload) -> Upload:
        """Return `upload` if its epoch is still current, else read the upload again; a check of the epoch is cheap."""
        return upload if await self.epoch(upload.id) == upload.epoch else await self.read(upload.id)

    @asynccontextmanager
    async def unless_changed(self, upload: Upload) -> AsyncIterator[None]:
        """Wrap a block that reads parts; turn `IntegrityError` into `ConcurrentChange` if the upload has changed.

        The parts may be missing because another replica has merged them into larger ones.
        """
        try:
            yield
        except IntegrityError:
            if await self.epoch(upload.id) != upload.epoch:
                raise ConcurrentChange(_MOVED) from None
            raise

    async def _read(self, id: str) -> tuple[Upload, bool]:
        found = await self.get(id) if _ID.fullmatch(id) else None
        if found is None or self._client not in {None, found[0].client}:
            raise NotFound("The upload does not exist: it may have ended long ago")
        return found

    async def get(self, id: str) -> tuple[Upload, bool] | None:
        """Return an upload of any client, and True if it has not expired; return None if it does not exist."""

        def work(tx: Transaction) -> tuple[Upload, bool] | None:
            row = tx.first(f"SELECT {_COLUMNS} FROM uploads WHERE space = :space AND id = :id", **self._key(id))
            return None if row is None else (self._whole(tx, row), row[5] >= tx.now)

        return await self._database.read(work)

    async def epoch(self, id: str) -> int | None:
        """Return the epoch of an upload, or None if the upload does not exist or has expired."""
        sql = "SELECT epoch FROM uploads WHERE space = :space AND id = :id AND expires >= :now"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key(id), now=tx.now))
        return None if row is None else int(row[0])

    async def take(self, id: str) -> Upload:
        """Return an upload as `read` does, and increase the epoch of an open upload.

        Writers that have read the upload before can then no longer change it. The caller must call `check` first.
        """

        def work(tx: Transaction) -> Upload | None:
            row = tx.first(
                f"""
                UPDATE uploads SET epoch = epoch + 1
                WHERE space = :space AND id = :id AND state = 'open' AND expires >= :now RETURNING {_COLUMNS}""",
                **self._key(id),
                now=tx.now,
            )
            return None if row is None else self._whole(tx, row)

        return await self._database.write(work) or await self.read(id)

    async def change(
        self,
        before: Upload,
        after: Upload,
        *,
        keep_seconds: float | None = None,
        objects: NewObjects | None = None,
    ) -> Upload:
        """Replace an upload; raise `ConcurrentChange` if another writer has taken or changed it first.

        The upload expires after `keep_seconds`, or at the time in `after` if `keep_seconds` is None. `objects` are
        the objects that the caller wrote.
        """
        pairs = zip(before.parts, after.parts, strict=False)
        kept = next((n for n, (old, new) in enumerate(pairs) if old != new), min(len(before.parts), len(after.parts)))
        old, new = before.object_ids, after.object_ids
        own = [] if objects is None else objects.own(sorted(new - old))
        shared = new - old - {each.id for each in own}
        changes = ObjectChanges(own=own, shared=frozenset(shared), gone=frozenset(old - new))
        with nullcontext() if objects is None else objects.publishing():
            changed = await self.put(
                replace(after, epoch=before.epoch), kept_parts=kept, keep_seconds=keep_seconds, objects=changes
            )
        if objects is not None:
            objects.kept(own)
        return changed

    async def put(
        self, upload: Upload, *, kept_parts: int, keep_seconds: float | None, objects: ObjectChanges
    ) -> Upload:
        """Replace an upload whose epoch is still `upload.epoch`; its first `kept_parts` parts are already stored.

        If the new state is `gone`, the references of the upload are deleted as well. Raise `ConcurrentChange` if the
        epoch differs, and `Collected` if an object that the upload needs is gone.
        """

        def work(tx: Transaction) -> Upload:
            expires = microseconds(upload.expires) if keep_seconds is None else tx.now + int(keep_seconds * SECOND)
            changed = tx.first(
                """
                UPDATE uploads SET state = :state, used = :used, epoch = epoch + 1, expires = :expires,
                    modified = :modified, record = :record
                WHERE space = :space AND id = :id AND epoch = :epoch RETURNING epoch""",
                **self._key(upload.id),
                state=upload.state,
                used=int(upload.used),
                epoch=upload.epoch,
                expires=expires,
                modified=0 if upload.state == "gone" else tx.now,
                record=upload.encode(),
            )
            if changed is None:
                raise ConcurrentChange(_MOVED)
            done = replace(upload, epoch=changed[0], expires=time_of(expires))
            if upload.state == "gone":
                return replace(done, parts=())
            tx.run(
                "DELETE FROM upload_parts WHERE space = :space AND upload = :id AND n >= :n",
                **self._key(upload.id),
                n=kept_parts,
            )
            self._add_parts(tx, upload, kept_parts)
            size = publish_objects(tx, self._space, objects.own)
            sql = "INSERT INTO upload_objects (space, upload, object) VALUES (:space, :id, :object)"
            new = sorted({*(each.id for each in objects.own), *objects.shared})
            tx.many(sql, [{**self._key(upload.id), "object": each} for each in new])
            _unlink_objects(tx, self._space, upload.id, objects.gone)
            self._usage.add(tx, stored_bytes=size)
            return done

        try:
            changed = await self._database.write(work)
        except ForeignKeyViolation:
            raise Collected from None
        if upload.state == "gone":
            await release_uploads(self._database)
        return changed

    async def open_by_client(self) -> dict[str, int]:
        """Return the number of unexpired open uploads of each client."""
        sql = """
            SELECT client, count(*) FROM uploads
            WHERE space = :space AND state IN ('open', 'complete') AND used = 0 AND expires >= :now GROUP BY client"""
        return await self._database.read(lambda tx: dict(tx.all(sql, space=self._space, now=tx.now)))

    async def xorbs(self, id: str) -> dict[str, int]:
        """Return the size in bytes of each xorb of a session, by the xorb's name."""
        sql = "SELECT name, size FROM xorbs WHERE space = :space AND upload = :id"
        return await self._database.read(lambda tx: dict(tx.all(sql, **self._key(id))))

    async def xorb(self, id: str, name: str) -> XorbRow | None:
        """Return a xorb of a session, or None if it was not uploaded."""
        sql = "SELECT size, record FROM xorbs WHERE space = :space AND upload = :id AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, **self._key(id), name=name))
        return None if row is None else XorbRow(row[0], bytes(row[1]))

    async def add_xorb(self, id: str, name: str, xorb: XorbRow, own: OwnObject) -> bool:
        """Insert a xorb and a reference to its object; return False if the xorb exists.

        Raise `NotFound` if the session has ended.
        """

        def work(tx: Transaction) -> bool:
            there = tx.first("SELECT state FROM uploads WHERE space = :space AND id = :id FOR UPDATE", **self._key(id))
            if there is None or there[0] == "gone":
                raise NotFound("The upload session has ended: request a new Xet token")
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
            self._usage.add(tx, stored_bytes=size)
            return True

        return await self._database.write(work)

    def _add_parts(self, tx: Transaction, upload: Upload, first: int) -> None:
        parts = [json.dumps(stored_as_dict(part), separators=(",", ":")) for part in upload.parts[first:]]
        tx.many(
            "INSERT INTO upload_parts (space, upload, n, location) VALUES (:space, :id, :n, :location)",
            [{**self._key(upload.id), "n": n, "location": location} for n, location in enumerate(parts, first)],
        )

    def _whole(self, tx: Transaction, row: Row) -> Upload:
        sql = "SELECT location FROM upload_parts WHERE space = :space AND upload = :id ORDER BY n"
        return Upload.decode(row, [location for (location,) in tx.all(sql, **self._key(row[0]))])

    def _key(self, id: str) -> dict[str, str]:
        return {"space": self._space, "id": id}


def expire_uploads(tx: Transaction, limit: int) -> int:
    """End at most `limit` expired uploads of all spaces; return their number."""
    return tx.run(
        """
        UPDATE uploads SET state = 'gone', epoch = epoch + 1, modified = 0 WHERE (space, id) IN (
            SELECT space, id FROM uploads WHERE state <> 'gone' AND expires < :now LIMIT :limit FOR UPDATE SKIP LOCKED
        )""",
        now=tx.now,
        limit=limit,
    )


async def release_uploads(database: Database) -> None:
    """Delete the references, parts and xorbs of ended uploads, then replace the 0 in the uploads' `modified`."""

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
    _unlink_objects(tx, space, upload, frozenset(object for (object,) in objects))
    done = len(objects)
    for table, column in (("upload_parts", "n"), ("xorbs", "name")):
        rows = f"SELECT {column} FROM {table} {these} LIMIT :rest"
        done += tx.run(f"DELETE FROM {table} {these} AND {column} IN ({rows})", **key, rest=limit - done)
    others = " ".join(
        f"AND NOT EXISTS (SELECT 1 FROM {table} {these})" for table in ("upload_objects", "upload_parts", "xorbs")
    )
    sql = f"UPDATE uploads SET modified = :now WHERE space = :space AND id = :upload AND modified = 0 {others}"
    return done + tx.run(sql, **key, now=tx.now)


def purge_uploads(tx: Transaction, before: int, limit: int) -> int:
    """Delete at most `limit` uploads that ended before the time `before`; return their number."""
    sql = """
        DELETE FROM uploads WHERE (space, id) IN (
            SELECT space, id FROM uploads
            WHERE state = 'gone' AND modified > 0 AND modified < :before LIMIT :limit
        )"""
    return tx.run(sql, before=before, limit=limit)


def _unlink_objects(tx: Transaction, space: str, upload: str, objects: frozenset[int]) -> None:
    sql = "DELETE FROM upload_objects WHERE space = :space AND upload = :upload AND object = :object"
    tx.many(sql, [{"space": space, "upload": upload, "object": each} for each in sorted(objects)])
    release_objects(tx, space, objects)

"""Uploads in the catalogue, changed only by writers who saw their latest epoch, and their expiry."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from protoslice.catalog.manifest import stored_as_dict
from protoslice.catalog.new_objects import NewObjects
from protoslice.catalog.spaces import Account
from protoslice.catalog.uploads import ObjectChanges, Overtaken, UploadRow, UploadTable
from protoslice.database import Database
from protoslice.database.transactions import time_of
from protoslice.errors import Conflict, Gone, IntegrityError, NotFound
from protoslice.uploads.model import Upload

_ID = re.compile(r"[0-9a-f]{10}-[0-9a-f]{20}")
_MOVED = "Another request has sent data to this upload in the meantime: ask for the upload's offset and continue there"


@dataclass(frozen=True, slots=True)
class VersionedUpload:
    """An upload and its epoch, which the next change has to name."""

    upload: Upload
    epoch: int


def new_upload_id() -> str:
    """Return an id that cannot be guessed."""
    return f"{int(time.time()):010x}-{secrets.token_hex(10)}"


class UploadRecords:
    """Uploads of one space by id: those of one client, or of all for None."""

    def __init__(self, database: Database, account: Account, client: str | None = None) -> None:
        self._table = UploadTable(database, account)
        self._client = client

    async def create(self, upload: Upload, *, keep_seconds: float) -> VersionedUpload:
        """Create an upload, which expires after `keep_seconds`."""
        return _versioned(await self._table.create(_row(upload), keep_seconds=keep_seconds))

    async def read(self, upload_id: str) -> VersionedUpload:
        """Return an upload; raise `NotFound` if there is none, `Gone` if it was removed or has expired."""
        held, lasts = await self._read(upload_id)
        if held.upload.state == "gone":
            raise Gone("This upload was removed or has expired")
        if not lasts:
            raise Gone("This upload has expired")
        return held

    async def check(self, upload_id: str) -> None:
        """Raise `NotFound` unless an upload may exist, and is not another client's."""
        if self._client is not None or not _ID.fullmatch(upload_id):
            await self._read(upload_id)

    async def take(self, upload_id: str) -> VersionedUpload:
        """Return an upload as `read` does, after `check`; other writers of an open one can change it no longer."""
        row = await self._table.take(upload_id)
        return await self.read(upload_id) if row is None else _versioned(row)

    async def again(self, held: VersionedUpload) -> VersionedUpload:
        """Return `held` if its epoch is still the latest, at the cost of one small statement; else as `read`."""
        if await self._table.epoch(held.upload.id) == held.epoch:
            return held
        return await self.read(held.upload.id)

    async def change(
        self,
        held: VersionedUpload,
        upload: Upload,
        *,
        keep_seconds: float | None = None,
        objects: NewObjects | None = None,
    ) -> VersionedUpload:
        """Replace an upload; raise `Conflict` if another writer took it or was first.

        It expires after `keep_seconds`; without them, when `upload` says. `objects` are those that the caller wrote.
        """
        before, after = held.upload.parts, upload.parts
        kept = next((n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), None)
        old, new = held.upload.object_ids, upload.object_ids
        own = [] if objects is None else objects.own(sorted(new - old))
        shared = new - old - {each.id for each in own}
        changes = ObjectChanges(own=own, shared=frozenset(shared), gone=frozenset(old - new))
        try:
            with nullcontext() if objects is None else objects.publishing():
                row = await self._table.change(
                    replace(_row(upload), epoch=held.epoch),
                    kept_parts=min(len(before), len(after)) if kept is None else kept,
                    keep_seconds=keep_seconds,
                    objects=changes,
                )
        except Overtaken:
            raise Conflict(_MOVED) from None
        if objects is not None:
            objects.kept(own)
        return VersionedUpload(replace(upload, expires=time_of(row.expires)), row.epoch)

    @asynccontextmanager
    async def unless_changed(self, held: VersionedUpload) -> AsyncIterator[None]:
        """Context for reading parts: `IntegrityError` becomes `Conflict` if the upload has changed meanwhile.

        Another replica may have merged the parts into larger ones.
        """
        try:
            yield
        except IntegrityError:
            if await self._table.epoch(held.upload.id) != held.epoch:
                raise Conflict(_MOVED) from None
            raise

    async def open_by_client(self) -> dict[str, int]:
        """Return the number of open uploads by client."""
        return await self._table.open_by_client()

    async def _read(self, upload_id: str) -> tuple[VersionedUpload, bool]:
        found = await self._table.get(upload_id) if _ID.fullmatch(upload_id) else None
        if found is None or self._client not in {None, found[0].client}:
            raise NotFound("No such upload: it may have ended long ago")
        return _versioned(found[0]), found[1]


def _row(upload: Upload) -> UploadRow:
    return UploadRow(
        id=upload.id,
        client=upload.client,
        state=upload.state,
        used=upload.used,
        expires=upload.expires_microseconds,
        record=upload.encode(),
        parts=tuple(json.dumps(stored_as_dict(part), separators=(",", ":")) for part in upload.parts),
    )


def _versioned(row: UploadRow) -> VersionedUpload:
    return VersionedUpload(Upload.decode(row), row.epoch)

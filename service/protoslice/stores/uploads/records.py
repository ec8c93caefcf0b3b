"""Records of uploads, changed by compare-and-set only, and their expiry."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime

from protoslice.errors import Conflict, Gone, IntegrityError, NotFound
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.clock import now
from protoslice.stores.layout import keys
from protoslice.stores.layout.fresh import put_new
from protoslice.stores.uploads.model import Upload

_ID = re.compile(r"[0-9a-f]{10}-[0-9a-f]{20}")
_MOVED = "Another request has sent data to this upload in the meantime: ask for the upload's offset and continue there"


@dataclass(frozen=True, slots=True)
class VersionedUpload:
    """Record and the entity tag it was read with, for the next compare-and-set."""

    upload: Upload
    etag: str


class UploadRecords:
    """Records of uploads by id: those of one client alone, or of all for None."""

    def __init__(self, storage: Storage, client: str | None = None) -> None:
        self._storage = storage
        self._client = client

    async def create(self, upload: Upload) -> VersionedUpload:
        """Create a record."""
        return VersionedUpload(upload, await put_new(self._storage, keys.upload(upload.id), upload.encode()))

    async def read(self, upload_id: str) -> VersionedUpload:
        """The current record.

        `NotFound` when there is none, `Gone` when the upload was removed or has expired.
        """
        held = await self._read(upload_id)
        if held.upload.state == "gone":
            raise Gone("This upload was removed or has expired")
        if held.upload.expires < now():
            raise Gone("This upload has expired")
        return held

    async def again(self, held: VersionedUpload) -> VersionedUpload:
        """`held`, as long as the record is the same, at the cost of one small call; else as `read`."""
        with suppress(NotFound):
            stat = await self._storage.stat(keys.upload(held.upload.id))
            if stat.etag == held.etag and held.upload.expires >= now():
                return held
        return await self.read(held.upload.id)

    async def change(self, held: VersionedUpload, upload: Upload) -> VersionedUpload:
        """Replace the held record; `Conflict` when another writer was first."""
        key = keys.upload(upload.id)
        try:
            return VersionedUpload(upload, await self._storage.put(key, upload.encode(), if_etag=held.etag))
        except Conflict:
            found = await self._read(upload.id)
            if found.upload == upload:  # our own write, whose answer was lost
                return found
            raise Conflict(_MOVED) from None

    @asynccontextmanager
    async def unless_changed(self, held: VersionedUpload) -> AsyncIterator[None]:
        """Context for reading parts: `IntegrityError` becomes `Conflict` if the record has changed meanwhile.

        Another replica may have merged the parts into larger ones.
        """
        try:
            yield
        except IntegrityError:
            if (await self._read(held.upload.id)).etag != held.etag:
                raise Conflict(_MOVED) from None
            raise

    async def _read(self, upload_id: str) -> VersionedUpload:
        missing = NotFound("No such upload: it may have ended long ago")
        if not _ID.fullmatch(upload_id):
            raise missing
        try:
            found = await load_record(self._storage, keys.upload(upload_id))
        except NotFound:
            raise missing from None
        if self._client not in {None, found.upload.client}:
            raise missing
        return found


async def load_record(storage: Storage, key: ObjectKey) -> VersionedUpload:
    """The record at `key`; `NotFound` when there is none."""
    found = await storage.get(key)
    return VersionedUpload(Upload.decode(found.data), found.stat.etag)


async def end_uploads(storage: Storage, *, moment: datetime, before: datetime, dry_run: bool = False) -> set[str]:
    """End uploads expired at `moment`, delete records ended before `before`; returns ids of all others.

    An upload ended here cannot become a store any more. Its objects are needed until its record is deleted, as a store
    may be in the making that has read the record just before. A dry run changes nothing.
    """
    alive: set[str] = set()
    records = UploadRecords(storage)
    async for stat in storage.iterate(keys.UPLOADS):
        try:
            held = await load_record(storage, stat.key)
        except NotFound:
            continue
        except IntegrityError:
            held = None
        ended = held is None or held.upload.state == "gone"
        if ended and stat.modified < before:
            if not dry_run:
                await storage.delete(stat.key)
            continue
        alive.add(stat.key.segments[-1])
        if held is not None and not (ended or dry_run) and held.upload.expires < moment:
            await end_upload(records, held)
    return alive


async def end_upload(records: UploadRecords, held: VersionedUpload) -> None:
    """End an expired upload unless its record has changed."""
    try:
        await records.change(held, replace(held.upload, state="gone", parts=(), saved=None))
    except (Conflict, NotFound):
        return  # continued at the last moment

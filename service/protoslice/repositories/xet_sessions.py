"""Xet sessions: they keep xorbs, which contain chunks of files, until a shard lists the files made of these chunks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from protoslice.catalog.manifest import (
    ObjectExtent,
    ObjectLocation,
    checked,
    stored_as_dict,
    stored_from_dict,
    with_digest,
)
from protoslice.catalog.new_objects import NewObjects
from protoslice.catalog.uploads import UploadTable, XorbRow
from protoslice.concurrency.results import LruCache
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.stores import Stores
from protoslice.uploads import NewUpload, Upload

_MOST: Final = 10_000
"""Largest number of xorbs in a session."""
_NAMED_FREE: Final = 16 << 30
"""Total size in bytes that the files of a shard may always have, regardless of the session's xorbs."""
_NAMED_TIMES: Final = 16
"""How often, beyond `_NAMED_FREE`, a shard may use each byte of the session's xorbs; every use is hashed."""
_ROOM: Final = 16 << 20
"""Number of bytes of memory for the ends of the chunks in the xorbs that one request reads."""


@dataclass(frozen=True, slots=True)
class StagedXorb:
    """The chunks of a xorb, concatenated in an object of the session."""

    location: ObjectLocation
    ends: Sequence[int]
    """The end of each chunk in the object."""

    def extent(self, first: int, end: int, size: int) -> ObjectExtent:
        """Return the extent of consecutive chunks; raise `InvalidInput` unless they exist and have `size` bytes."""
        if not 0 <= first < end <= len(self.ends):
            raise InvalidInput(
                f"The shard refers to chunks {first} to {end} of a xorb that has {len(self.ends)} chunks"
            )
        start, stop = (self.ends[first - 1] if first else 0), self.ends[end - 1]
        if stop - start != size:
            raise InvalidInput(
                f"The shard says that chunks {first} to {end} of a xorb have {size} bytes, but they have {stop - start}"
            )
        return ObjectExtent(self.location, start, stop)


class XorbSession:
    """The xorbs of one session by hash; the session is an upload, which keeps the xorbs."""

    def __init__(self, stores: Stores, upload: Upload) -> None:
        self._table = UploadTable(stores.database, stores.quotas.usage)
        self._stores = stores
        self._upload = upload
        self._read: LruCache[str, StagedXorb] = LruCache(most=_MOST, room=_ROOM)

    async def has(self, name: str) -> bool:
        """Return True when a xorb was uploaded; raise `LimitExceeded` when the session accepts no further xorb."""
        sizes = await self._sizes()
        if name in sizes:
            return True
        if len(sizes) >= _MOST:
            raise LimitExceeded(f"An upload session allows at most {_MOST} xorbs: request a new Xet token")
        self._stores.uploads.options.check_size(sum(sizes.values()) + 1)
        return False

    async def check_named(self, size: int) -> None:
        """Raise `LimitExceeded` if the files of a shard are too large in total; a shard may repeat chunks."""
        if size <= _NAMED_FREE:
            return
        most = _NAMED_FREE + _NAMED_TIMES * sum((await self._sizes()).values())
        if size > most:
            raise LimitExceeded(
                f"The files of the shard have more than {most} bytes, too many for the xorbs sent so far: list some "
                "of the files in another shard"
            )

    def new_objects(self) -> NewObjects:
        """Return a `NewObjects` for the chunks of a xorb; its `end` discards all objects not passed to `keep`."""
        return self._stores.new_objects()

    async def keep(self, name: str, chunks: ObjectLocation, ends: Sequence[int], objects: NewObjects) -> None:
        """Let shards use a xorb whose chunks are durable; if the xorb arrives twice, keep the first."""
        record = json.dumps({"chunks": stored_as_dict(chunks), "ends": list(ends)}).encode()
        (own,) = objects.own(chunks.object_ids)
        with objects.publishing():
            added = await self._table.add_xorb(self._upload.id, name, XorbRow(chunks.size, with_digest(record)), own)
        if added:
            objects.kept([own])

    async def settle(self) -> None:
        """Stop counting the session as an open upload, because its bytes are in use."""
        if not self._upload.used:
            await self._stores.uploads.set_aside(self._upload.id)
            self._upload = replace(self._upload, used=True)

    async def compose(self, upload: Upload, extents: Sequence[ObjectExtent]) -> Upload:
        """Make a staged file from extents of xorbs; the session is kept for as long as the file."""
        session = await self._stores.uploads.renew(self._upload.id)
        return await self._stores.uploads.compose(upload.id, extents, session.expires)

    async def xorb(self, name: str) -> StagedXorb:
        """Return an uploaded xorb; it is read only once as long as memory suffices.

        Raise `InvalidInput` when the xorb was not uploaded.
        """
        found = self._read.get(name)
        if found is None:
            found = await self._read_xorb(name)
            self._read.put(name, found, 200 + 40 * len(found.ends))
        return found

    async def _read_xorb(self, name: str) -> StagedXorb:
        found = await self._table.xorb(self._upload.id, name)
        if found is None:
            raise InvalidInput(f"The shard refers to xorb {name}, which was not sent: send it first")
        try:
            raw = json.loads(checked(found.record, "the record of a xorb"))
            return StagedXorb(stored_from_dict(raw["chunks"]), raw["ends"])
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError("the record of a xorb does not parse") from error

    async def _sizes(self) -> dict[str, int]:
        """Return the size in bytes of each uploaded xorb, by the xorb's hash."""
        return await self._table.xorbs(self._upload.id)


class XorbSessions:
    """The sessions of one repository: each is an upload without bytes, which expires like any other upload."""

    def __init__(self, stores: Stores, repository: int) -> None:
        self._mark = f"xet {repository}"
        self._stores = stores

    async def begin(self, client: str) -> str:
        """Begin a session of a client and return its id.

        The session counts as an open upload until a shard has used its xorbs. Raise `QuotaExceeded` if the quota of the
        space is used up. Raise `TooMany` if too many uploads are open.
        """
        await self._stores.quotas.check(stored_bytes=1)  # clients show an error of a session, but not of a xorb
        new = NewUpload(length=0, partial=True, client=client, client_metadata=self._mark)
        return (await self._stores.uploads.create(new)).id

    async def open(self, session: str, client: str) -> XorbSession:
        """Return a session that the client has begun in this repository.

        Raise `NotFound` for any other session and for an expired session.
        """
        with suppress(NotFound):
            upload = await self._stores.uploads.get(session)
            if (upload.client_metadata, upload.client, upload.state) == (self._mark, client, "complete"):
                return XorbSession(self._stores, upload)
        raise NotFound("The upload session does not exist: request a new Xet token")

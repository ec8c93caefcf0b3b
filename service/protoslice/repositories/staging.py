"""Staged files of a repository by digest, until a commit names them or without one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from protoslice.concurrency.gather import in_turns
from protoslice.errors import ChecksumMismatch, IntegrityError, InvalidInput, NotFound
from protoslice.storage import Storage
from protoslice.stores import IngestRequest, StoredPath, Stores
from protoslice.stores.catalog.named_records import NamedRecords
from protoslice.stores.layout import keys
from protoslice.stores.uploads import NewUpload, Upload


class StagedFiles:
    """Files of a history by the SHA-256 of their bytes; those that are uploads expire as any upload."""

    def __init__(self, storage: Storage, history: str, stores: Stores) -> None:
        self._history = history
        self._stores = stores
        self._records = NamedRecords(storage, keys.HISTORIES / history / "staged", "staged file")

    async def begin(self, sha256: str, size: int, client: str) -> Upload:
        """The upload of a file: a new one, or one that is complete when the bytes have come before."""
        found = await self.find(sha256)
        if found is not None and found.length == size:
            return found
        # A name lets the bytes be inspected as they come: a commit reads none of them again.
        new = NewUpload(length=size, path=sha256, partial=True, sha256=bytes.fromhex(sha256), client=client)
        return await self._stores.uploads.create(new)

    async def put_part(self, mark: str, size: int, pieces: AsyncIterator[bytes], client: str) -> str:
        """Take a part of `size` bytes, in any order and any number of times; returns the id that `join` takes."""
        return await self._stores.uploads.put_part(self._marked(mark), pieces, client, size=size)

    async def join(self, sha256: str, size: int, parts: Sequence[tuple[str, str]], client: str) -> None:
        """Stage a file of parts, each a mark and an id, without copying them; they are read once.

        `ChecksumMismatch` for other bytes, whose parts are removed: they could only be read in vain again.
        """

        async def check(part: tuple[str, str]) -> Upload:
            mark, upload_id = part
            found = await self._stores.uploads.renew(upload_id)
            if found.client_metadata != self._marked(mark):
                raise InvalidInput(f"{upload_id[:80]!r} is not a part of this file: send the part again")
            return found

        upload = await self.begin(sha256, size, client)
        if not upload.is_whole:
            uploads = await in_turns(check, parts)
            extents = [extent for each in uploads for location in each.parts for extent in location.extents()]
            try:
                expires = min(each.expires for each in uploads)
                upload = await self._stores.uploads.compose(upload.id, extents, expires)
            except ChecksumMismatch:
                await in_turns(lambda each: self._stores.uploads.remove(each.id), uploads)
                raise
        await self.keep(upload)

    def _marked(self, mark: str) -> str:
        return f"part {self._history} {mark}"

    async def keep(self, upload: Upload) -> None:
        """Let commits find a complete upload; a file that is kept without one stays where it is."""
        assert upload.sha256 is not None, "an upload that is staged was begun with its digest"
        if await self.place(upload.sha256) is None:
            data = json.dumps({"upload": upload.id}).encode()
            await self._records.set(keys.staged(self._history, upload.sha256), data)
        await self._stores.uploads.set_aside(upload.id)

    async def find(self, sha256: str) -> Upload | None:
        """The complete upload with this SHA-256; None when there is none, or it has expired."""
        upload_id, _ = await self._read(sha256)
        return await self._whole(upload_id)

    async def place(self, sha256: str) -> StoredPath | None:
        """Return the place in a store of a file that is kept without a commit, or None."""
        _, place = await self._read(sha256)
        return await self._there(place)

    async def settle(self, sha256: str) -> StoredPath | None:
        """Place in a store of a file, made of its upload unless it is there; None when neither exists."""
        upload_id, held = await self._read(sha256)
        place = await self._there(held)
        if place is None and (upload := await self._whole(upload_id)) is not None:
            made = await self._stores.uploads.assemble({sha256: [upload.id]}, IngestRequest(), {sha256: sha256})
            place = (made.store.id, sha256)
            await self.hold(sha256, place)
        return place

    async def hold(self, sha256: str, place: StoredPath) -> None:
        """Keep the file at a place in a store, whichever commits name it."""
        store, path = place
        data = json.dumps({"store": store, "path": path}).encode()
        await self._records.set(keys.staged(self._history, sha256), data)

    async def has(self, sha256: str) -> bool:
        """True when there is a complete upload or a kept file with this SHA-256."""
        upload_id, place = await self._read(sha256)
        return await self._there(place) is not None or await self._whole(upload_id) is not None

    async def _whole(self, upload_id: str | None) -> Upload | None:
        """An upload; None for one that is not complete, or gone."""
        with suppress(NotFound):
            upload = None if upload_id is None else await self._stores.uploads.get(upload_id)
            return upload if upload is not None and upload.is_whole else None
        return None

    async def _there(self, place: StoredPath | None) -> StoredPath | None:
        """A place in a store; None when the store or the file is gone."""
        with suppress(NotFound):
            if place is not None and place[1] in await self._stores.files(place[0]):
                return place
        return None

    async def _read(self, sha256: str) -> tuple[str | None, StoredPath | None]:
        """The upload or the place in a store of a file; neither for one that is not known."""
        try:
            data, _ = await self._records.read(keys.staged(self._history, sha256))
        except NotFound:
            return None, None
        try:
            raw = json.loads(data)
            return (raw["upload"], None) if "upload" in raw else (None, (raw["store"], raw["path"]))
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError("the record of a staged file does not parse") from error

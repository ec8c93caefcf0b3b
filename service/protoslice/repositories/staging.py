"""Staged files of a repository by digest, until a commit names them or without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from protoslice.catalog.kept_files import KeptFiles, RepositoryFile
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import ChecksumMismatch, InvalidInput, NotFound
from protoslice.serving import StoredPath
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import NewUpload, Upload


class StagedFiles:
    """Files of a repository by the SHA-256 of their bytes; those that are uploads expire as any upload."""

    def __init__(self, stores: Stores, repository: int) -> None:
        self._repository = repository
        self._stores = stores
        self._kept = KeptFiles(stores.database, stores.space, repository, "staged")

    async def begin(self, sha256: str, size: int, client: str, *, composed: bool = False) -> Upload:
        """The upload of a file: a new one, or one that is complete when the bytes have come before.

        A file that is `composed` of objects needs no room: they were counted as they came.
        """
        found = await self.find(sha256)
        if found is not None and found.length == size:
            return found
        # A name lets the bytes be inspected as they come: a commit reads none of them again.
        digest = bytes.fromhex(sha256)
        new = NewUpload(length=size, path=sha256, partial=True, sha256=digest, client=client, composed=composed)
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

        upload = await self.begin(sha256, size, client, composed=True)
        if not upload.is_whole:
            uploads = await map_concurrently(check, parts)
            extents = [extent for each in uploads for location in each.parts for extent in location.extents()]
            try:
                expires = min(each.expires for each in uploads)
                upload = await self._stores.uploads.compose(upload.id, extents, expires)
            except ChecksumMismatch:
                await map_concurrently(lambda each: self._stores.uploads.remove(each.id), uploads)
                raise
        await self.keep(upload)

    def _marked(self, mark: str) -> str:
        return f"part {self._repository} {mark}"

    async def keep(self, upload: Upload) -> None:
        """Let commits find a complete upload; a file that is kept without one stays where it is."""
        assert upload.sha256 is not None, "an upload that is staged was begun with its digest"
        if await self.place(upload.sha256) is None:
            await self._put(upload.sha256, RepositoryFile(size=upload.offset, upload=upload.id))
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
            await self._put(sha256, RepositoryFile(size=made.store.size, store=made.store.id, path=sha256))
        return place

    async def hold(self, sha256: str, size: int, place: StoredPath) -> None:
        """Keep the file at a place in a store, whichever commits name it."""
        store, path = place
        await self._put(sha256, RepositoryFile(size=size, store=store, path=path))

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
        """Return the upload or the place in a store of a file; neither for one that is not known."""
        found = await self._kept.get(sha256)
        if found is None:
            return None, None
        place = None if found.store is None else (found.store, found.path or "")
        return found.upload, place

    async def _put(self, sha256: str, file: RepositoryFile) -> None:
        await self._kept.put(sha256, file)

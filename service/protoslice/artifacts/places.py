"""Places of blobs: which of several that have the bytes of one a repository goes by."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from protoslice.artifacts.faults import ManifestBlobUnknown
from protoslice.artifacts.files import blob_path
from protoslice.artifacts.names import Digest
from protoslice.artifacts.records import ArtifactRecords
from protoslice.catalog.kept_files import KeptFile
from protoslice.errors import Conflict, NotFound, StorageUnavailable
from protoslice.stores import Stores

_TRIES: Final = 8
_SEARCHED_STORES: Final = 256
"""Stores of manifests that are searched for a blob whose own store has been removed."""


class BlobPlaces:
    """Places of the blobs of one repository."""

    def __init__(self, stores: Stores, records: ArtifactRecords) -> None:
        self._stores = stores
        self._records = records

    async def is_there(self, blob: KeptFile) -> bool:
        """True if the bytes of a blob are where its record says."""
        if not blob.has_come:
            return False
        with suppress(NotFound):
            if blob.store is not None:
                await self._stores.files(blob.store)
                return True
            return (await self._stores.uploads.get(blob.upload or "")).is_whole
        return False

    async def found(self, digest: Digest, blob: KeptFile) -> KeptFile | None:
        """Return the place of the bytes of a blob, by its record or in the store of another manifest.

        The store that the blob came with may have been removed while manifests name it that share its bytes; the record
        is corrected then. None when the bytes are gone.
        """
        if await self.is_there(blob):
            return blob
        if blob.store is None:
            return None
        for store in await self._records.stores(_SEARCHED_STORES):
            with suppress(NotFound):
                path = await self._path_in(store, digest)
                if path is not None:
                    place = replace(blob, store=store, path=path)
                    await self._records.put_blobs({digest: place})
                    return place
        return None

    async def _path_in(self, store: str, digest: Digest) -> str | None:
        """Path of a blob among the files of a store; None when it is not there."""
        files = await self._stores.files(store)
        if digest.algorithm != "sha256":
            return blob_path(digest) if blob_path(digest) in files else None
        return next((path for path, file in files.items() if file.sha256 == digest.hex), None)

    async def keep(self, digest: Digest, blob: KeptFile, *, fresh: bool) -> KeptFile:
        """Note the place of a blob, and return the one that holds.

        A place whose bytes are there stays if it is in a store, since uploads expire and manifests may name it
        already; any such place stays unless `blob` is `fresh`. `StorageUnavailable` when others keep changing it.
        """
        for _ in range(_TRIES):
            found = await self._records.wanted_blob(digest)
            if found is not None and (found.store is not None or not fresh) and await self.is_there(found):
                return found
            kept = replace(blob, wanted=found is not None and found.wanted)
            with suppress(Conflict):
                await self._records.change_blob(digest, kept, found)
                return kept
        raise StorageUnavailable(f"Blob {digest.text} is being moved by other requests: send the blob again")

    async def find(self, digest: Digest) -> KeptFile | None:
        """The place of a blob that a manifest names; None for one that has not come.

        `ManifestBlobUnknown` for one that had come and is gone, since its sender takes it to be here.
        """
        found = await self._records.wanted_blob(digest)
        if found is None or not found.has_come:
            return None
        present = await self.found(digest, found)
        if present is None:
            raise ManifestBlobUnknown(f"Blob {digest.text} was removed with its store or upload: send it again")
        return present

    async def want(self, digest: Digest) -> KeptFile | None:
        """Note that a manifest names a blob that has not come; its place if it came meanwhile, else None."""
        for _ in range(_TRIES):
            found = await self._records.wanted_blob(digest)
            if found is not None and (found.has_come or found.wanted):
                return await self.find(digest)
            with suppress(Conflict):
                await self._records.change_blob(digest, KeptFile(size=0, wanted=True), found)
        raise StorageUnavailable(f"Blob {digest.text} is being moved by other requests: send the manifest again")

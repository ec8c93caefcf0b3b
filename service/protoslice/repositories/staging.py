"""Staged files: uploads by digest, in one repository, until a commit names them."""

from __future__ import annotations

import json
from contextlib import suppress

from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import Storage
from protoslice.stores import Stores
from protoslice.stores.catalog.named_records import NamedRecords
from protoslice.stores.layout import keys
from protoslice.stores.uploads import NewUpload, Upload


class StagedFiles:
    """Uploads of a history by the SHA-256 of their bytes; they expire as any upload."""

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

    async def keep(self, upload: Upload) -> None:
        """Let commits find a complete upload."""
        assert upload.sha256 is not None, "an upload that is staged was begun with its digest"
        data = json.dumps({"upload": upload.id}).encode()
        await self._records.set(keys.staged(self._history, upload.sha256), data)
        await self._stores.uploads.set_aside(upload.id)

    async def find(self, sha256: str) -> Upload | None:
        """The complete upload with this SHA-256; None when there is none, or it has expired."""
        with suppress(NotFound):
            data, _ = await self._records.read(keys.staged(self._history, sha256))
            try:
                upload = await self._stores.uploads.get(json.loads(data)["upload"])
            except (ValueError, TypeError, KeyError) as error:
                raise IntegrityError("the record of a staged file does not parse") from error
            return upload if upload.is_whole else None
        return None

"""Files by digest: entries that find a file in the storage, for a store that takes it unwritten.

An entry names the objects that hold the file, and is believed as long as their claims allow them. So it outlives its
store for as long as another store shares the objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, InvalidInput, NotFound
from protoslice.facts import File
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import place_in_time
from protoslice.stores.manifest import Manifest, ObjectLocation, stored_as_dict, stored_from_dict

LEAST_FOUND: Final = 1 << 20
"""Bytes of the smallest file that has an entry: a smaller one is sent again in no time."""
_LOOKED_AT: Final = 8
"""Entries of one digest that are looked at, newest store first."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


StoredPath = tuple[str, str]
"""Id of a store, and the path of a file there."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """File that lies in the storage, which a new store may take as it is."""

    size: int
    sha256: str
    location: ObjectLocation


def refs_of(manifest: Manifest) -> dict[str, FileRef]:
    """References to the files of a store by path; without those of objects registered in place."""
    return {
        file.path: FileRef(file.size, file.sha256, stored)
        for file, stored in zip(manifest.files, manifest.objects, strict=True)
        if file.sha256 is not None
    }


def entries_of_files(manifest: Manifest, new: Iterable[tuple[File, ObjectLocation]]) -> Mapping[ObjectKey, bytes]:
    """Entries of those files of a store whose bytes came with it, to be written before its manifest."""
    # The attempt parts two uploads of the same bytes that were made at the same microsecond.
    place = f"{place_in_time(manifest)}-{manifest.attempt}"
    return {
        keys.by_digest(file.sha256) / place: seal(json.dumps(stored_as_dict(stored), separators=(",", ":")).encode())
        for file, stored in new
        if file.sha256 is not None and file.size >= LEAST_FOUND
    }


class FilesByDigest:
    """Files of one storage, by digest."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._claims = Claims(storage)

    async def find(self, sha256: str) -> FileRef | None:
        """A file of 1 MiB or more with this SHA-256, in hex; None when no store is known to have one."""
        if not _DIGEST.fullmatch(sha256):
            raise InvalidInput("Invalid digest: use the 64 hex digits of a SHA-256, in lower case")
        for item in (await self._storage.list(keys.by_digest(sha256), limit=_LOOKED_AT)).items:
            location = await self._location(item)
            if location is not None and not await self._is_gone(location):
                return FileRef(location.size, sha256, location)
        return None

    async def stores_of(self, sha256: str) -> Sequence[str]:
        """Ids of the newest stores that a file with this SHA-256 came with; some may be gone."""
        page = await self._storage.list(keys.by_digest(sha256), limit=_LOOKED_AT)
        return [item.key.segments[-1].split("-")[1] for item in page.items]

    async def is_over(self, item: ObjectStat) -> bool:
        """True when an entry is damaged, or a claim does not allow the objects that it names."""
        location = await self._location(item)
        return location is None or await self._is_gone(location)

    async def _is_gone(self, location: ObjectLocation) -> bool:
        over = await map_concurrently(lambda need: self._claims.is_over(*need), location.names.items())
        return any(over)

    async def _location(self, item: ObjectStat) -> ObjectLocation | None:
        with suppress(NotFound, IntegrityError, ValueError, TypeError, KeyError):
            data = await self._storage.get_range(item.key, 0, item.size)
            return stored_from_dict(json.loads(unseal(data, "the entry of a file")))
        return None

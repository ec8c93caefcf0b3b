"""Files by digest, for stores that take them unwritten."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.stores import StoreTable
from protoslice.errors import IntegrityError, InvalidInput, NotFound
from protoslice.facts import PiecePlace
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.manifest import Manifest, ObjectLocation

LEAST_FOUND: Final = 1 << 20
"""Bytes of the smallest file that is found by its digest: a smaller one is sent again in no time."""
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


def found_by_digest(manifest: Manifest) -> list[tuple[int, bytes]]:
    """Numbers and SHA-256 of the files of a store that can be found by digest."""
    return [
        (number, bytes.fromhex(file.sha256))
        for number, (file, stored) in enumerate(zip(manifest.files, manifest.objects, strict=True))
        if file.sha256 is not None and file.size >= LEAST_FOUND and stored.uri is None
    ]


class FilesByDigest:
    """Files of the stores of one space, by digest."""

    def __init__(self, table: StoreTable, manifests: Manifests) -> None:
        self._table = table
        self._manifests = manifests

    async def find(self, sha256: str) -> FileRef | None:
        """Return a file of 1 MiB or more with this SHA-256, in hex; None if no store has one."""
        async for manifest, number in self._found(sha256):
            return FileRef(manifest.files[number].size, sha256, manifest.objects[number])
        return None

    async def place(self, sha256: str, size: int) -> PiecePlace | None:
        """Return a place of a file in a store, or None if no store has it."""
        async for manifest, number in self._found(sha256):
            file = manifest.files[number]
            if file.size == size:
                return PiecePlace(sha256, size, manifest.id, file.path, 0)
        return None

    async def _found(self, sha256: str) -> AsyncIterator[tuple[Manifest, int]]:
        if not _DIGEST.fullmatch(sha256):
            raise InvalidInput("Invalid digest: use the 64 hex digits of a SHA-256, in lower case")
        for row, number in await self._table.with_file(bytes.fromhex(sha256)):
            with suppress(IntegrityError, NotFound):  # a damaged store is of no use here
                yield await self._manifests.of(row), number

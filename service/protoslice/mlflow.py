"""The artifacts of MLflow, which clients write and read file by file.

A folder becomes a store after some time without writes. Any replica can create the store, with the same result.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import ChangedFolder, ChangedFolders, MlflowTable
from protoslice.catalog.repositories import FILE, NamedStore
from protoslice.concurrency.gather import map_concurrently
from protoslice.database import Database
from protoslice.errors import Conflict, LimitExceeded, NotFound, ProtosliceError, StorageUnavailable
from protoslice.file_names import check_file_path
from protoslice.stores import Created, IngestRequest, Stores
from protoslice.uploads import Uploads

_SMALL: Final = 16 << 10
"""Maximum size in bytes of a file that is kept in a row of the database. A larger file becomes a store at once."""
_PART: Final = "draft "
"""Beginning of the metadata of an upload that is a part of a file. The session and the part's number follow."""
MOST_PARTS: Final = 10_000


class UnknownPart(NotFound):
    """The error for a part of a file that does not exist, or that belongs to another upload."""


class MlflowArtifacts:
    """The artifact files of one space, by path.

    All state is in the database and the storage, so all replicas return the same. Parts of files are looked up in
    `uploads`, which are by default all uploads of the space.
    """

    def __init__(self, stores: Stores, uploads: Uploads | None = None) -> None:
        self._stores = stores
        self._uploads = uploads or stores.uploads
        self.table = MlflowTable(stores.database, stores.quotas.usage)

    async def put(self, path: str, pieces: AsyncIterator[bytes]) -> RepositoryFile:
        """Write a file, or a new version of a file. A large file becomes a store of one file, with the file's name."""
        check_file_path(path)
        held = bytearray()
        async for piece in pieces:
            held += piece
            if len(held) > _SMALL:
                return await self._put_large(path, bytes(held), pieces)
        await self._stores.shared.check_free_space()
        return await self._keep(path, RepositoryFile(size=len(held), data=bytes(held)))

    async def naming(self, names: Sequence[NamedStore]) -> set[tuple[str, str]]:
        """Return the pairs of a store and a folder in `names` whose folder currently refers to the store.

        A folder refers to the stores that have the bytes of its files. It also refers to the store that was created
        from the folder, if the folder still has the same files.
        """
        frozen = [each for each in names if each.kind != FILE]
        current = await map_concurrently(lambda each: self.table.is_frozen(each.name, each.store), frozen)
        now = {(each.store, each.name) for each, is_now in zip(frozen, current, strict=True) if is_now}
        return now | {(each.store, each.name) for each in names if each.kind == FILE}

    async def put_part(self, session: str, number: int, pieces: AsyncIterator[bytes], client: str) -> str:
        """Save a part of a file, and return an id for `join`. Parts may arrive in any order, and repeatedly."""
        return await self._uploads.put_part(f"{_PART}{session} {number}", pieces, client)

    async def join(self, path: str, session: str, parts: Sequence[tuple[int, str]]) -> RepositoryFile:
        """Create the file at `path` from pairs of a part's number and id; raise `UnknownPart` if a part is missing."""
        check_file_path(path)
        if not parts or len(parts) > MOST_PARTS:
            raise LimitExceeded(f"Invalid parts: a file is joined from 1 to {MOST_PARTS} parts, not {len(parts)}")

        async def check(part: tuple[int, str]) -> str:
            number, upload = part
            if (await self._uploads.get(upload)).client_metadata != f"{_PART}{session} {number}":
                raise UnknownPart(f"{upload[:80]!r} is not part {number} of this upload: send the part again")
            return upload

        uploads, name = await map_concurrently(check, sorted(parts)), path.rpartition("/")[2]
        made = await self._uploads.assemble({name: uploads}, IngestRequest())
        return await self._keep(path, _of_store(made, name))

    async def store(self, folder: str, request: IngestRequest) -> Created:
        """Create a store of all files below a folder; raise `NoArtifact` for an empty folder.

        Each large file already has a store. The new store shares the bytes of the file with that store.
        """
        files, version = await self.table.files(folder)
        places = {path: (file.store, file.path) for path, file in files.items() if file.store and file.path}
        async with await self._stores.ingest(request) as ingest:
            await ingest.take(await self._stores.file_refs(places))
            for path, file in files.items():
                if file.data is not None:
                    sink = await ingest.file(path)
                    await sink.write(file.data)
                    await sink.close()
            made = await ingest.commit()
        await self.table.freeze(folder, version, made.store.id)
        return made

    async def freeze(self, folder: str) -> str:
        """Return the id of the store that has all current files below a folder. If the store does not exist, create it.

        Raise `NoArtifact` for an empty folder.
        """
        known = await self.table.frozen_store(folder)
        if known is not None:
            with suppress(NotFound):  # the store may have been removed
                await self._stores.files(known)
                return known
        return (await self.store(folder, IngestRequest())).store.id

    async def _put_large(self, path: str, head: bytes, rest: AsyncIterator[bytes]) -> RepositoryFile:
        name = path.rpartition("/")[2]
        async with await self._stores.ingest(IngestRequest()) as ingest:
            sink = await ingest.file(name)
            await sink.write(head)
            async for piece in rest:
                await sink.write(piece)
            await sink.close()
            return await self._keep(path, _of_store(await ingest.commit(), name))

    async def _keep(self, path: str, file: RepositoryFile) -> RepositoryFile:
        await self.table.put(path, file)
        return file


def new_session() -> str:
    """Return a random name for a file upload in parts."""
    return secrets.token_hex(16)


def _of_store(made: Created, name: str) -> RepositoryFile:
    return RepositoryFile(size=made.store.size, store=made.store.id, path=name)


_log = logging.getLogger(__name__)

LOOKS: Final = 4
"""Approximate number of searches within the time without writes after which a folder becomes a store."""
_PAGE: Final = 256
_AT_ONCE: Final = 4
"""Maximum number of stores that a replica creates at the same time. Each store may have up to 10 000 files."""


class AutoCommit:
    """A background job for all spaces that creates a store from each folder after `seconds` without a write."""

    def __init__(self, database: Database, stores_of: Callable[[str], Awaitable[Stores]], seconds: float) -> None:
        self._table = ChangedFolders(database)
        self._stores_of = stores_of
        self._seconds = seconds
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def look_for_ever(self) -> None:
        """Call `look` repeatedly, also after a failure."""
        while True:
            await asyncio.sleep(max(self._seconds / LOOKS, 1) * (0.5 + random.random()))
            try:
                await self.look()
            except ProtosliceError as error:
                _log.warning("could not search for MLflow folders to turn into stores: %s", type(error).__name__)

    async def look(self) -> None:
        """Create stores of all folders without recent writes.

        After a failure that would recur, a folder is skipped until it changes.
        """
        while True:
            found = await self._table.quiet(self._seconds, _PAGE)
            first = int(secrets.token_hex(4), 16) % max(1, len(found))  # concurrent replicas begin at different folders
            settled = await map_concurrently(self._settle, found[first:] + found[:first])
            if len(found) < _PAGE or not all(settled):
                return

    async def _settle(self, folder: ChangedFolder) -> bool:
        """Create the store of a folder. Return False if the attempt has to be repeated later.

        An attempt is repeated after a conflict, and if the storage or database does not respond.
        """
        async with self._turns:
            try:
                await MlflowArtifacts(await self._stores_of(folder.space)).freeze(folder.name)
            except NotFound:  # the folder has become empty, or the space was removed
                pass
            except (Conflict, StorageUnavailable):
                return False
            except ProtosliceError as error:
                _log.warning(
                    "could not create a store of the MLflow folder %s in space %s: %s",
                    folder.name[:200],
                    folder.space,
                    error.message,
                )
            await self._table.settle(folder)
            return True

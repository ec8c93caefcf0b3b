"""The marker of a storage, which names its catalogue; functions here open a storage and its catalogue together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from protoslice.catalog import open_database
from protoslice.database import Database, connect, file_of, upgrade
from protoslice.database.schema import version_of
from protoslice.errors import NotFound, StorageUnavailable, Unsupported
from protoslice.storage import ObjectKey, Storage, open_storage
from protoslice.storage.registry import READ_ONLY
from protoslice.uris import USER_INFO, local_path

MARKER: Final = ObjectKey("protoslice.json")
LAYOUT: Final = 4
_BACKUP: Final = "This is a backup: restore it into another storage with `protoslice restore-backup`"
_OTHER: Final = (
    "This storage belongs to another database: set PROTOSLICE_DATABASE to the one it was created with, or restore that "
    "from a backup"
)
_NO_STORES: Final = "This storage contains no stores: check PROTOSLICE_STORAGE or --storage"


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of a storage's marker: the id of its catalogue, and whether the storage is a backup.

    A catalogue and its restored copies have the same id, but each restoration has another `incarnation`. The storage
    belongs to the incarnation in its marker. The field `restoring` is True until the restoration is complete.
    """

    catalogue: str
    backup: bool = False
    incarnation: str = ""
    restoring: bool = False


async def read_marker(storage: Storage) -> Marker | None:
    """Return the marker of a storage, or None; raise `Unsupported` if the marker is damaged or has another layout."""
    try:
        found = (await storage.get(MARKER)).data
    except NotFound:
        return None
    said: dict[str, Any] = {}
    with suppress(ValueError, TypeError, RecursionError):
        said = dict(json.loads(found))
    if "layout" not in said:
        raise Unsupported(f"The file {MARKER} of this storage is damaged: restore it from a backup")
    if said["layout"] != LAYOUT:
        raise Unsupported(
            f"This storage was written by another version of Protoslice (layout {said['layout']}, not {LAYOUT}), "
            "which this one cannot read: use that version, or a new storage"
        )
    return Marker(
        str(said.get("catalogue")),
        said.get("backup") is True,
        str(said.get("incarnation", "")),
        said.get("restoring") is True,
    )


async def write_marker(storage: Storage, marker: Marker) -> None:
    """Write the marker of a storage."""
    said = {name: value for name, value in asdict(marker).items() if value}
    await storage.put(MARKER, json.dumps({"layout": LAYOUT} | said).encode())


async def check_storage(storage: Storage, database: Database | None, *, mark: bool) -> None:
    """Raise `Unsupported` unless the storage belongs to the catalogue `database`.

    If the storage has no marker, raise `NotFound`, or, if `mark` is True and the database has no stores yet, write
    the marker. If `database` is None, check only the layout.
    """
    own = None if database is None else await marker_of(database)
    found = await read_marker(storage)
    if found is None:
        if not mark or database is None or own is None:
            raise NotFound(_NO_STORES)
        if await database.read(lambda tx: tx.first("SELECT 1 FROM objects WHERE size IS NOT NULL LIMIT 1")) is not None:
            raise Unsupported(
                "This storage is empty, but the database has stores: mount the storage, or correct PROTOSLICE_STORAGE. "
                "To start with an empty storage, use a new database"
            )
        await write_marker(storage, own)
        return
    if found.backup:
        raise Unsupported(_BACKUP)
    if own is not None and found.catalogue != own.catalogue:
        raise Unsupported(_OTHER)
    if own is not None and found.incarnation != own.incarnation:
        raise Unsupported(
            "This storage belongs to a newer copy of this database, made by `protoslice restore-backup`: set "
            "PROTOSLICE_DATABASE to that copy. To use this database instead, stop the service of the copy, and set "
            f"`incarnation` in the file {MARKER} of the storage to {json.dumps(own.incarnation)}"
        )


async def require_owner(storage: Storage, own: Marker) -> None:
    """Raise `StorageUnavailable` if the storage now belongs to another catalogue, such as a restored copy of `own`."""
    found = None
    with suppress(Unsupported):
        found = await read_marker(storage)
    if found is None or (found.catalogue, found.incarnation) != (own.catalogue, own.incarnation):
        raise StorageUnavailable(
            "The storage now belongs to another database, such as one restored from a backup: stop this service. It no "
            "longer deletes data"
        )


async def marker_of(database: Database) -> Marker:
    """Return the marker that a catalogue's storage must have."""
    row = await database.read(lambda tx: tx.first("SELECT catalogue_id, incarnation FROM meta"))
    return Marker("") if row is None else Marker(bytes(row[0]).hex(), incarnation=bytes(row[1] or b"").hex())


def _no_stores(uri: str) -> str:
    shown = USER_INFO.sub("", local_path(uri) or uri)
    return f"The storage {shown} contains no stores: check PROTOSLICE_STORAGE or --storage"


def is_missing(uri: str) -> bool:
    """Return True if `uri` names a folder that does not exist, which the opening of a storage would create."""
    folder = local_path(uri)
    return folder is not None and not Path(folder).exists()


@asynccontextmanager
async def open_both(uri: str, options: Mapping[str, str], url: str | None) -> AsyncIterator[tuple[Storage, Database]]:
    """Yield the storage at `uri` and its catalogue at `url`, which must exist and belong together.

    Otherwise, raise `NotFound` or `Unsupported`. Nothing is created.
    """
    if is_missing(uri):
        raise NotFound(_no_stores(uri))
    async with open_storage(uri, options) as storage, open_catalogue(storage, uri, url, create=False) as database:
        if not storage.abilities.write:
            database.read_only = READ_ONLY
        await check_storage(storage, database, mark=False)
        yield storage, database


@asynccontextmanager
async def open_catalogue(
    storage: Storage, uri: str, url: str | None, *, create: bool, audit_seconds: float = 0, audit_entries: int = 0
) -> AsyncIterator[Database]:
    """Yield the catalogue at `url`, which belongs to an open storage.

    If the storage has no marker, create the catalogue if `create` is True, else raise `NotFound`. Raise `Unsupported`
    if the storage is a backup.
    """
    shared = storage.abilities.shared
    if url is not None or shared:
        file_of(url, uri)  # rejects a bad URL early: access to the storage may take long
    found = await read_marker(storage)
    if found is None and not create:
        raise NotFound(_no_stores(uri))
    if found is not None and found.backup:
        raise Unsupported(_BACKUP)
    async with open_database(
        url, uri, shared=shared, create=found is None, audit_seconds=audit_seconds, audit_entries=audit_entries
    ) as database:
        yield database


async def upgrade_catalogue(uri: str, options: Mapping[str, str], url: str | None) -> tuple[int, int]:
    """Create the catalogue at `url` or upgrade its schema; return the schema's version before and after.

    Raise `Unsupported` if the storage has another layout, belongs to another catalogue or is a backup. In these cases,
    nothing is created or changed.
    """
    file_of(url, uri)
    found = None
    if not is_missing(uri):
        async with open_storage(uri, options) as storage:
            found = await read_marker(storage)
        if found is not None and found.backup:
            raise Unsupported(_BACKUP)
    database = await asyncio.to_thread(connect, url, uri, create=found is None)
    try:
        if found is not None and await version_of(database):
            row = await database.read(lambda tx: tx.first("SELECT catalogue_id FROM meta"))  # a column of every schema
            if row is not None and found.catalogue != bytes(row[0]).hex():
                raise Unsupported(_OTHER)
        return await upgrade(database, create=found is None)
    finally:
        await database.close()

"""Marker of a storage: the catalogue whose objects it holds."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from protoslice.catalog import Database
from protoslice.errors import NotFound, StorageUnavailable, Unsupported
from protoslice.storage import ObjectKey, Storage

MARKER: Final = ObjectKey("protoslice.json")
LAYOUT: Final = 4


@dataclass(frozen=True, slots=True)
class Marker:
    """What a storage says of itself: the id of its catalogue, and True for a backup.

    A catalogue and its restored copies have the same id. Each restoration has another `incarnation`, and the storage
    belongs to the one in its marker. It is `restoring` until the restoration is complete.
    """

    catalogue: str
    backup: bool = False
    incarnation: str = ""
    restoring: bool = False


async def read_marker(storage: Storage) -> Marker | None:
    """Return the marker of a storage, or None if it has none; raise `Unsupported` for a damaged or unknown one."""
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
    """Mark a storage."""
    said = {name: value for name, value in asdict(marker).items() if value}
    await storage.put(MARKER, json.dumps({"layout": LAYOUT} | said).encode())


async def check_storage(storage: Storage, database: Database | None, *, mark: bool) -> None:
    """Raise `Unsupported` unless a storage belongs to the catalogue; `mark` makes it so where it belongs to none.

    Without a database only the layout is checked. Raise `NotFound` for a storage without a marker.
    """
    own = None if database is None else await marker_of(database)
    found = await read_marker(storage)
    if found is None:
        if not mark or database is None or own is None:
            raise NotFound("This storage contains no stores: check PROTOSLICE_STORAGE or --storage")
        if await database.read(lambda tx: tx.first("SELECT 1 FROM objects WHERE size IS NOT NULL LIMIT 1")) is not None:
            raise Unsupported(
                "This storage is empty, but the database has stores: mount the storage or correct PROTOSLICE_STORAGE; "
                "a new storage needs a new database"
            )
        await write_marker(storage, own)
        return
    if found.backup:
        raise Unsupported("This is a backup: restore it into another storage with `protoslice restore-backup`")
    if own is not None and found.catalogue != own.catalogue:
        raise Unsupported(
            "This storage belongs to another database: set PROTOSLICE_DATABASE to the one it was created with, or "
            "restore that from a backup"
        )
    if own is not None and found.incarnation != own.incarnation:
        raise Unsupported(
            "This storage belongs to another copy of this database, which `protoslice restore-backup` made later: set "
            f"PROTOSLICE_DATABASE to that copy. To return to this one, stop that service and set the incarnation in "
            f"{MARKER} to {json.dumps(own.incarnation)}"
        )


async def require_owner(storage: Storage, own: Marker) -> None:
    """Raise `StorageUnavailable` if a storage belongs to another catalogue, such as a restored copy of `own`."""
    found = None
    with suppress(Unsupported):
        found = await read_marker(storage)
    if found is None or (found.catalogue, found.incarnation) != (own.catalogue, own.incarnation):
        raise StorageUnavailable(
            "The storage belongs to another database now, such as one that was restored from a backup: no data is "
            "deleted; stop this service"
        )


async def marker_of(database: Database) -> Marker:
    """Return the marker of the storage that belongs to a catalogue."""
    row = await database.read(lambda tx: tx.first("SELECT catalogue_id, incarnation FROM meta"))
    return Marker("") if row is None else Marker(bytes(row[0]).hex(), incarnation=bytes(row[1] or b"").hex())

"""Marker of a storage: the catalogue whose objects it holds."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from protoslice.catalog import Database
from protoslice.errors import NotFound, Unsupported
from protoslice.storage import ObjectKey, Storage

MARKER: Final = ObjectKey("protoslice.json")
LAYOUT: Final = 4


@dataclass(frozen=True, slots=True)
class Marker:
    """What a storage says of itself: the id of its catalogue, and True for a backup."""

    catalogue: str
    backup: bool = False


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
    return Marker(str(said.get("catalogue")), said.get("backup") is True)


async def write_marker(storage: Storage, marker: Marker) -> None:
    """Mark a storage."""
    said = {"layout": LAYOUT, "catalogue": marker.catalogue} | ({"backup": True} if marker.backup else {})
    await storage.put(MARKER, json.dumps(said).encode())


async def check_storage(storage: Storage, database: Database | None, *, mark: bool) -> None:
    """Raise `Unsupported` unless a storage belongs to the catalogue; `mark` makes it so where it belongs to none.

    Without a database only the layout is checked. Raise `NotFound` for a storage without a marker.
    """
    catalogue = None if database is None else await catalogue_id(database)
    found = await read_marker(storage)
    if found is None:
        if not mark or database is None or catalogue is None:
            raise NotFound("This storage contains no stores: check PROTOSLICE_STORAGE or --storage")
        if await database.read(lambda tx: tx.first("SELECT 1 FROM objects WHERE size IS NOT NULL LIMIT 1")) is not None:
            raise Unsupported(
                "This storage is empty, but the database has stores: mount the storage or correct PROTOSLICE_STORAGE; "
                "a new storage needs a new database"
            )
        await write_marker(storage, Marker(catalogue))
        return
    if found.backup:
        raise Unsupported("This is a backup: restore it into another storage with `protoslice restore-backup`")
    if catalogue is not None and found.catalogue != catalogue:
        raise Unsupported(
            "This storage belongs to another database: set PROTOSLICE_DATABASE to the one it was created with, or "
            "restore that from a backup"
        )


async def catalogue_id(database: Database) -> str:
    """Return the id of a catalogue."""
    row = await database.read(lambda tx: tx.first("SELECT catalogue_id FROM meta"))
    return bytes(row[0]).hex() if row is not None else ""

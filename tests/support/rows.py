"""Rows of stores and objects, put into a catalogue without a storage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from protoslice.catalog.histories import History
from protoslice.catalog.labels import HUB
from protoslice.catalog.objects import ObjectTable, OwnObject, ReservedObject, new_id, new_objects
from protoslice.catalog.repositories import RepositoryTable
from protoslice.catalog.requests import IngestRequest
from protoslice.catalog.spaces import SpaceTable, Usage
from protoslice.catalog.stores import Published, StoreDraft, StoreTable
from protoslice.catalog.uploads import Upload
from protoslice.database import Database

SPACE: Final = "team"
ACCOUNT: Final = Usage(SPACE)


async def reserved(database: Database, count: int) -> list[ReservedObject]:
    """Return new objects."""
    objects = new_objects(count)
    await ObjectTable(database).reserve(SPACE, objects)
    return objects


def own(objects: Sequence[ReservedObject], size: int | None = 10) -> list[OwnObject]:
    """Return reserved objects as the request that wrote them publishes them."""
    return [OwnObject(each.id, size) for each in objects]


async def put_store(
    database: Database,
    digest: str,
    *,
    tags: Sequence[str] = (),
    own: Sequence[OwnObject] = (),
    shared: Collection[int] = (),
    replaces: int | None = None,
    size: int = 7,
    **more: Any,
) -> Published:
    """Publish a store in the space `SPACE`."""
    values: dict[str, Any] = {
        "id": new_id(), "digest": digest, "type": None, "size": size, "created": 0, "manifest": b"{}", "weight": 1,
    }  # fmt: skip
    new = StoreDraft(**values | more, own=own, shared=shared)
    return await StoreTable(database, ACCOUNT).publish(new, tags, replaces=replaces)


def an_upload(id: str, **more: Any) -> Upload:
    """Return an open upload of the client `c`, for a table."""
    created = datetime(2026, 1, 1, tzinfo=UTC)
    values = {"path": None, "request": IngestRequest(), "created": created, "expires": created, "client": "c"}
    return Upload(id=id, **values | more)


async def history_of(database: Database, name: str = "ann/m", *, space: str = SPACE) -> History:
    """Return the history of a repository, which is made unless it is there."""
    table = RepositoryTable(database, Usage(space), HUB)
    row = await table.get(name) or await table.create(name)
    return History(database, Usage(space), row.id, row.name)


async def keys(database: Database) -> set[str]:
    """Return the keys of the objects that have rows."""
    return {key for (key,) in await database.read(lambda tx: tx.all("SELECT key FROM objects"))}


async def held(database: Database) -> tuple[int, int, int]:
    """Return what the space `SPACE` holds: stored bytes, stores, bytes of their files."""
    await SpaceTable(database).create(SPACE)
    row = await SpaceTable(database).get(SPACE)
    return row.held.stored_bytes, row.held.stores, row.held.logical_bytes

"""Creation of objects under random names: a `Conflict` there means a lost answer to our own write."""

from __future__ import annotations

from collections.abc import Mapping

from protoslice.concurrency.gather import map_concurrently, run_concurrently
from protoslice.errors import Conflict
from protoslice.storage import Buffer, ObjectKey, Storage, Writer
from protoslice.stores.layout import keys
from protoslice.stores.manifest import LARGEST_INLINE_SUMS, ObjectLocation


async def put_new(storage: Storage, key: ObjectKey, data: Buffer) -> str:
    """Create an object under a random name and return its entity tag; idempotent for equal `data`."""
    try:
        return await storage.put_if_absent(key, data)
    except Conflict:
        found = await storage.get(key)
        if found.data != data:
            raise
        return found.stat.etag


async def put_all_new(storage: Storage, objects: Mapping[ObjectKey, Buffer]) -> None:
    """Create objects under random names side by side; all are durable on return."""
    await map_concurrently(lambda key: put_new(storage, key, objects[key]), objects)


async def commit_summed(storage: Storage, key: ObjectKey, writer: Writer, sums: bytes) -> ObjectLocation:
    """Publish the object written by `writer`, and beside it the `sums` that its location does not hold."""
    size = writer.size
    if len(sums) <= LARGEST_INLINE_SUMS:
        return ObjectLocation(size, key=str(key), etag=await _commit_new(storage, key, writer), sums=sums)
    # Side by side, since no manifest names either before both are durable.
    etag, _ = await run_concurrently(
        lambda: _commit_new(storage, key, writer), lambda: put_new(storage, keys.sums_of(key), sums)
    )
    return ObjectLocation(size, key=str(key), etag=etag)


async def _commit_new(storage: Storage, key: ObjectKey, writer: Writer) -> str:
    size = writer.size
    try:
        return await writer.commit()
    except Conflict:
        found = await storage.stat(key)
        if found.size != size:
            raise
        return found.etag

"""Objects under names that nobody else knows: a `Conflict` about one can only be our own success, its answer lost."""

from __future__ import annotations

from protoslice.errors import Conflict
from protoslice.storage import Buffer, ObjectKey, Storage, Writer

__all__ = ["commit_new", "put_new"]


async def put_new(storage: Storage, key: ObjectKey, data: Buffer) -> str:
    """Create an object whose name is random, or below one that is; its entity tag."""
    try:
        return await storage.put_if_absent(key, data)
    except Conflict:
        found = await storage.stat(key)
        if found.size != len(data) or await storage.get_range(key, 0, found.size, if_etag=found.etag) != data:
            raise
        return found.etag


async def commit_new(storage: Storage, key: ObjectKey, writer: Writer) -> str:
    """Publish what was written for such an object; its entity tag."""
    size = writer.size
    try:
        return await writer.commit()
    except Conflict:
        found = await storage.stat(key)
        if found.size != size:
            raise
        return found.etag

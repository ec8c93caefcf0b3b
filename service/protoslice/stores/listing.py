"""Everything that lies in a folder of a storage."""

from __future__ import annotations

from collections.abc import AsyncIterator

from protoslice.storage import ObjectKey, ObjectStat, Storage

__all__ = ["everything"]


async def everything(storage: Storage, folder: ObjectKey) -> AsyncIterator[ObjectStat]:
    """What lies below `folder`, in the order of its keys."""
    after: ObjectKey | None = None
    while True:
        page = await storage.list(folder, after=after)
        for item in page.items:
            yield item
        after = page.after
        if after is None:
            return

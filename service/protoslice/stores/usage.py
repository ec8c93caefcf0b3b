"""Usage of a storage: bytes of the files of its stores, and of the objects that hold them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from protoslice.catalog import Database
from protoslice.concurrency.gather import each_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectStat, Storage
from protoslice.stores.catalog.manifests import is_retired
from protoslice.stores.collection.garbage import collect_garbage
from protoslice.stores.layout import keys
from protoslice.stores.manifest import Manifest


@dataclass(slots=True)
class Usage:
    """Counts of the stores of a space."""

    stores: int = 0
    logical_bytes: int = 0
    """Bytes of the files of all stores, those in place included."""
    stored_bytes: int = 0
    """Bytes of all objects of uploads, each once: those of removed stores and of open uploads too."""
    reclaimable_bytes: int = 0
    """Stored bytes that a garbage collection would free now, with its usual grace."""
    unreadable: int = 0
    """Damaged manifests, whose files are not counted."""


async def usage_of(
    storage: Storage, database: Database, space: str, *, clock: Callable[[], float] = time.time
) -> Usage:
    """Count the stores of one space: lists its objects, and reads its manifests."""
    usage = Usage()

    async def add(item: ObjectStat) -> None:
        try:
            data = await storage.get_range(item.key, 0, item.size, if_etag=item.etag)
            if not is_retired(data):
                usage.logical_bytes += sum(file.size for file in Manifest.decode(data).files)
                usage.stores += 1
        except IntegrityError:
            usage.unreadable += 1
        except (Conflict, NotFound):
            pass  # removed or replaced since it was listed

    await each_concurrently(add, storage.iterate(keys.STORES))
    async for item in storage.iterate(keys.OBJECTS):
        usage.stored_bytes += item.size
    usage.reclaimable_bytes = (await collect_garbage(storage, database, space, dry_run=True, clock=clock)).bytes
    return usage

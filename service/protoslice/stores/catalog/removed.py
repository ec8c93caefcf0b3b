"""Removed stores: their manifests are kept for a grace, so that readers get to the end and a removal can be undone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.concurrency.executor import Worker
from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.layout.fresh import put_new
from protoslice.stores.manifest import Manifest

__all__ = ["Tombstone", "bury", "find_tombstone", "tombstone_of"]

_WHAT = "the record of a removed store"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A store that was removed: where that is written, the manifest, and the tags that went with the store."""

    key: ObjectKey
    manifest: Manifest
    tags: tuple[str, ...]


async def bury(storage: Storage, store_id: str, manifest: bytes, tags: Sequence[str]) -> None:
    """Keep the manifest of a store that is about to be removed, as it lies there, damaged or not."""
    head = seal(json.dumps({"tags": list(tags)}).encode())
    await put_new(storage, keys.new_removed(store_id), head + b"\n" + manifest)


def tombstone_of(key: ObjectKey, data: bytes) -> Tombstone:
    """The tombstone that `bury` wrote; `IntegrityError` when it, or the manifest in it, is damaged."""
    head, digest, manifest = [*data.split(b"\n", 2), b"", b""][:3]
    try:
        tags = json.loads(unseal(head + b"\n" + digest, _WHAT))["tags"]
    except (ValueError, KeyError, TypeError):
        raise IntegrityError(f"{_WHAT} does not parse") from None
    return Tombstone(key, Manifest.decode(manifest), tuple(tags))


async def find_tombstone(storage: Storage, worker: Worker, store_id: str) -> Tombstone:
    """The newest tombstone of a store; `NotFound` when the store was not removed, or too long ago."""
    found = [item async for item in storage.iterate(keys.REMOVED / store_id)]
    if not found:
        raise NotFound(f"the store {store_id} was not removed, or its objects have been collected since")
    newest = max(found, key=lambda item: (item.modified, item.key))
    data = await storage.get_range(newest.key, 0, newest.size)
    return await worker.sized(len(data), lambda: tombstone_of(newest.key, data))

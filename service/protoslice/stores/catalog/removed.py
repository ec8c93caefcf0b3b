"""Tombstones: manifests of removed stores, kept for the grace period.

Readers finish meanwhile, and removals can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.concurrency.executor import Worker
from protoslice.errors import IntegrityError, InvalidInput, NotFound
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.layout.fresh import put_new
from protoslice.stores.manifest import Manifest

_WHAT = "the record of a removed store"
_AT_ONCE = 32
"""Tombstones listed in one call; a store that was removed several times may have several."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Record of a removed store: the tombstone's key, the manifest, and the tags removed with the store."""

    key: ObjectKey
    manifest: Manifest
    tags: tuple[str, ...]


async def bury(storage: Storage, store_id: str, manifest: bytes, tags: Sequence[str]) -> None:
    """Write the tombstone of a store about to be removed; `manifest` is stored as it is, even damaged."""
    head = seal(json.dumps({"tags": list(tags)}).encode())
    await put_new(storage, keys.new_removed(store_id), head + b"\n" + manifest)


def tombstone_of(key: ObjectKey, data: bytes) -> Tombstone:
    """Parse a tombstone written by `bury`; `IntegrityError` when it or its manifest is damaged."""
    head, digest, manifest = [*data.split(b"\n", 2), b"", b""][:3]
    try:
        tags = json.loads(unseal(head + b"\n" + digest, _WHAT))["tags"]
    except (ValueError, KeyError, TypeError):
        raise IntegrityError(f"{_WHAT} does not parse") from None
    return Tombstone(key, Manifest.decode(manifest), tuple(tags))


async def removed_id(storage: Storage, prefix: str) -> str:
    """The only id of a removed store that begins with `prefix`.

    `InvalidInput` when several do, `NotFound` when none does.
    """
    found: set[str] = set()
    async for item in storage.iterate(keys.REMOVED, after=keys.REMOVED / prefix, limit=_AT_ONCE):
        store_id = item.key.segments[1]
        if not store_id.startswith(prefix) or len(found) > 1:
            break
        found.add(store_id)
    if len(found) > 1:
        raise InvalidInput(f"Several removed stores have ids that start with {prefix!r}: give more digits")
    if not found:
        raise NotFound(
            f"No removed store has an id that starts with {prefix!r}: garbage collection may have deleted its objects"
        )
    return found.pop()


async def find_tombstone(storage: Storage, worker: Worker, store_id: str) -> Tombstone:
    """The newest tombstone of a store.

    `NotFound` when the store was not removed or its tombstone was collected.
    """
    found = [item async for item in storage.iterate(keys.REMOVED / store_id)]
    if not found:
        raise NotFound(f"Store {store_id} was not removed, or garbage collection has deleted its objects")
    newest = max(found, key=lambda item: (item.modified, item.key))
    data = await storage.get_range(newest.key, 0, newest.size)
    return await worker.sized(len(data), lambda: tombstone_of(newest.key, data))

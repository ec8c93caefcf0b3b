"""Soundness check of a store: everything that its manifest names exists and passes its checksums."""

from __future__ import annotations

from collections.abc import Iterator

from protoslice.concurrency.executor import Worker
from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.envelope import unseal
from protoslice.stores.manifest import Manifest, ObjectLocation
from protoslice.stores.objects.stored import open_object

_STEP = 4 << 20


async def is_sound(
    storage: Storage, manifest: Manifest, worker: Worker, *, verify: bool, seen: set[str] | None = None
) -> bool:
    """True when a store can be read whole.

    `verify` also compares every block of its objects with its checksum. Objects in `seen` are sound, and those that are
    found to be are added to it.
    """
    try:
        for name, key in manifest.beside.items():
            unseal((await storage.get(ObjectKey(key))).data, name)
        for stored in _objects(manifest):
            if seen is None or stored.key not in seen:
                await _check(storage, stored, worker, verify=verify)
            if seen is not None and stored.key is not None:
                seen.add(stored.key)
    except (NotFound, IntegrityError):
        return False
    return True


def _objects(manifest: Manifest) -> Iterator[ObjectLocation]:
    """Objects in the storage that a manifest names, each once."""
    seen: set[str] = set()
    for stored in manifest.stored:
        for part in stored.objects:
            if part.key is not None and part.key not in seen:
                seen.add(part.key)
                yield part


async def _check(storage: Storage, stored: ObjectLocation, worker: Worker, *, verify: bool) -> None:
    """Raise `NotFound` or `IntegrityError` unless an object has its size and, with `verify`, its sums."""
    found = await open_object(storage, stored, worker, verify=verify)
    try:
        if (await storage.stat(ObjectKey(stored.key or ""))).size != stored.size:
            raise IntegrityError(f"stored object {stored.key!r} has a wrong size")
        for at in range(0, stored.size if verify else 0, _STEP):
            await found.fetch([found.covering((at, min(at + _STEP, stored.size)))])
    finally:
        found.close()

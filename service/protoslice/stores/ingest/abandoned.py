"""Deletion of attempts that became no store, at once and not by a collector."""

from __future__ import annotations

from contextlib import suppress

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import ProtosliceError
from protoslice.storage import Storage
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.layout import keys
from protoslice.stores.layout.references import references_of
from protoslice.stores.manifest import Manifest


async def drop_attempt(storage: Storage, attempt: str) -> None:
    """Delete the objects of an attempt that was never published.

    On a storage error the rest is left to a collector.
    """
    with suppress(ProtosliceError):
        while items := (await storage.list(keys.OBJECTS / attempt)).items:
            for item in items:
                await storage.delete(item.key)


async def drop_outrun(storage: Storage, claims: Claims, manifest: Manifest) -> None:
    """Delete the objects of a manifest in whose place another one is.

    On a storage error the rest is left to a collector.
    """
    # Others may share its objects: where an answer was lost, and the manifest has been there for a while, and by the
    # entries of its files, which are there before it. Even the faster upload may, which made the same store.
    own = references_of(manifest)
    with suppress(ProtosliceError):
        claim = await claims.condemn(manifest.attempt)
        if claim is None:
            return
        there = [item.key async for item in storage.iterate(keys.OBJECTS / manifest.attempt)]
        if any(key not in own for key in there if keys.is_reference(key)):
            await claims.revive(claim)
        elif await claims.doom(claim):
            await map_concurrently(storage.delete, [key for key in there if key.segments[-1] != "claim"])
            await storage.delete(keys.claim(manifest.attempt))

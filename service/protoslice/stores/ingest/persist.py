"""Keeping what was made of the files of a store, and saying what its manifest is to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.storage import Storage
from protoslice.stores.domain import IngestRequest, Manifest, StoreInfo, now
from protoslice.stores.ingest.receive import Received
from protoslice.stores.ingest.roots import Root
from protoslice.stores.layout import keys
from protoslice.stores.layout.envelope import seal
from protoslice.stores.layout.fresh import put_new
from protoslice.stores.layout.listing import side_by_side

__all__ = ["PLANNER", "keep"]

PLANNER: Final = _core.Plan.VERSION
"""The version of the planner that the chunks of new stores are made by."""


async def keep(
    storage: Storage,
    attempt: str,
    request: IngestRequest,
    received: Sequence[Received],
    root: Root,
    *,
    worker: Worker,
) -> Manifest:
    """The manifest of the store that `received` make, once everything that goes beside the files is in `storage`."""
    prepared = root.prepared
    kept = {"index": prepared.index, "plan": prepared.plan, "image": prepared.image} if prepared else {}
    schema = prepared.schema if prepared else None
    if schema is not None:
        # Bundled types too: a later program may bundle them otherwise. With the attempt it is kept as long as the
        # store is; were it shared by stores, writers and collectors would have to agree about one thing more.
        kept["schema"] = schema.canonical
    beside = {name: data for name, data in kept.items() if data is not None}
    await side_by_side(lambda name: put_new(storage, keys.object_key(attempt, name), seal(beside[name])), beside)
    files, objects = tuple(file.info for file in received), tuple(file.stored for file in received)
    manifest = Manifest(
        id="",
        type=root.type,
        root=root.path,
        chunks=prepared.chunks if prepared else 0,
        min_chunk=request.min_chunk,
        max_chunk=request.max_chunk,
        created=now(),
        source=request.source,
        attempt=attempt,
        files=files,
        objects=objects,
        side=root.side,
        indexed=prepared is not None,
        chunked=prepared is not None and prepared.image is not None,
        schema=schema.fingerprint if schema else None,
        planner=PLANNER if prepared else None,
        why=root.why,
    )
    return await worker.sized(StoreInfo.of(manifest).weight, manifest.named)

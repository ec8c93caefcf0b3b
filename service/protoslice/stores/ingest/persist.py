"""Drafts of stores: the manifest, and the records to be written beside its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protoslice import _core
from protoslice.catalog.objects import new_id
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.identity import Policy
from protoslice.storage import ObjectKey
from protoslice.stores.clock import now
from protoslice.stores.envelope import seal
from protoslice.stores.ingest.receive import Received
from protoslice.stores.ingest.root.choice import Root
from protoslice.stores.ingest.root.prepare import Prepared
from protoslice.stores.manifest import LARGEST_INLINE, Manifest
from protoslice.stores.requests import IngestRequest
from protoslice.stores.writing.new_objects import NewObjects

PLANNER: Final = _core.Plan.VERSION
"""Version of the planner that makes the chunks of new stores."""
KEPT: Final = _core.Plan.KEPT_VERSION
"""Version of plans that chunked roots came with."""
MERGED: Final = _core.Plan.MERGED_VERSION
"""Version of plans by sizes of chunked roots."""


def policy_of(request: IngestRequest, root: Root) -> Policy:
    """Facts of a store besides its files, which with these make its id."""
    prepared = root.prepared
    schema = prepared.schema if prepared else None
    return Policy(
        root=root.path,
        type=root.type,
        min_chunk=request.min_chunk,
        max_chunk=request.max_chunk,
        schema=schema.fingerprint if schema else None,
        planner=_planner(prepared) if prepared else None,
        rules=prepared.rules if prepared else (),
    )


def _planner(prepared: Prepared) -> int:
    if prepared.kept:
        return KEPT
    return MERGED if prepared.merged else PLANNER


async def drafted(
    request: IngestRequest, received: Sequence[Received], root: Root, *, objects: NewObjects, worker: Worker
) -> Manifest:
    """Return the manifest of a store of the files `received` and `root`, all of whose objects are durable."""
    prepared = root.prepared
    kept = {"index": prepared.index, "plan": prepared.plan, "image": prepared.image} if prepared else {}
    schema = prepared.schema if prepared else None
    if schema is not None:
        # Bundled types too: a later program may bundle them otherwise.
        kept["schema"] = schema.canonical
    records = {name: data for name, data in kept.items() if data is not None}

    async def beside(name: str) -> ObjectKey:
        return await objects.put(await worker.sized(len(records[name]), lambda: seal(records[name])))

    large = [name for name, data in records.items() if len(data) > LARGEST_INLINE]
    keys = dict(zip(large, await map_concurrently(beside, large), strict=True))
    policy = policy_of(request, root)
    manifest = Manifest(
        id="",
        type=policy.type,
        root=policy.root,
        chunks=prepared.chunks if prepared else 0,
        min_chunk=policy.min_chunk,
        max_chunk=policy.max_chunk,
        created=now(),
        source=request.source,
        files=tuple(file.info for file in received),
        objects=tuple(file.stored for file in received),
        side=root.side,
        indexed=prepared is not None,
        chunked=prepared is not None and prepared.image is not None,
        schema=policy.schema,
        planner=policy.planner,
        rules=tuple(policy.rules),
        why=root.why,
        stream=root.stream,
        inline={name: data for name, data in records.items() if name not in keys},
        beside={name: key.text for name, key in keys.items()},
        row=new_id(),
    )
    return await worker.sized(manifest.weight, manifest.named)

"""Drafts of stores: the manifest, and the records to be written beside its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.identity import Policy
from protoslice.storage import ObjectKey
from protoslice.stores.catalog.files import entries_of_files
from protoslice.stores.clock import now
from protoslice.stores.envelope import seal
from protoslice.stores.ingest.receive import Received
from protoslice.stores.ingest.root.choice import Root
from protoslice.stores.ingest.root.prepare import Prepared
from protoslice.stores.layout import keys
from protoslice.stores.manifest import LARGEST_INLINE, Manifest
from protoslice.stores.requests import IngestRequest

PLANNER: Final = _core.Plan.VERSION
"""Version of the planner that makes the chunks of new stores."""
KEPT: Final = _core.Plan.KEPT_VERSION
"""Version of plans that chunked roots came with."""
MERGED: Final = _core.Plan.MERGED_VERSION
"""Version of plans by sizes of chunked roots."""


@dataclass(frozen=True, slots=True)
class StoreDraft:
    """Store ready to be published."""

    manifest: Manifest
    beside: Mapping[ObjectKey, bytes]
    """Records still to be written: index, plan, image, schema, and entries of new files."""


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
    attempt: str, request: IngestRequest, received: Sequence[Received], root: Root, *, worker: Worker
) -> StoreDraft:
    """Draft of the store made of the files `received` and `root`."""
    prepared = root.prepared
    kept = {"index": prepared.index, "plan": prepared.plan, "image": prepared.image} if prepared else {}
    schema = prepared.schema if prepared else None
    if schema is not None:
        # Bundled types too: a later program may bundle them otherwise. Stored with the attempt, the schema lives as
        # long as the store; sharing it would need another agreement between writers and collectors.
        kept["schema"] = schema.canonical
    inline = {name: data for name, data in kept.items() if data is not None and len(data) <= LARGEST_INLINE}
    plain = {keys.object_key(attempt, name): data for name, data in kept.items() if data and name not in inline}
    beside = await worker.sized(sum(map(len, plain.values())), lambda: {key: seal(data) for key, data in plain.items()})
    policy = policy_of(request, root)
    files, objects = tuple(file.info for file in received), tuple(file.stored for file in received)
    manifest = Manifest(
        id="",
        type=policy.type,
        root=policy.root,
        chunks=prepared.chunks if prepared else 0,
        min_chunk=policy.min_chunk,
        max_chunk=policy.max_chunk,
        created=now(),
        source=request.source,
        attempt=attempt,
        files=files,
        objects=objects,
        side=root.side,
        indexed=prepared is not None,
        chunked=prepared is not None and prepared.image is not None,
        schema=policy.schema,
        planner=policy.planner,
        rules=tuple(policy.rules),
        why=root.why,
        inline=inline,
    )
    named = await worker.sized(manifest.weight, manifest.named)
    new = [(file.info, file.stored) for file in received if not file.is_shared]
    entries = await worker.sized(manifest.weight, lambda: entries_of_files(named, new))
    return StoreDraft(named, {**beside, **entries})

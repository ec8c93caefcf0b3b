"""Publishing: durable files become a store through a manifest and one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from protoslice import _core
from protoslice.catalog.manifest import LARGEST_INLINE, Manifest, with_digest
from protoslice.catalog.new_objects import NewObjects
from protoslice.catalog.objects import new_id
from protoslice.catalog.requests import Created, IngestRequest
from protoslice.catalog.stores import StoreDraft, StoreRow
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.database.transactions import microseconds, now
from protoslice.errors import IntegrityError, NotFound, StorageUnavailable, UnsoundModel
from protoslice.facts import ModelReport
from protoslice.ingest.file_writer import IngestedFile
from protoslice.ingest.root import Root, RootRecords
from protoslice.serving.finding import found_by_digest
from protoslice.serving.opened import is_sound
from protoslice.serving.shared import Space
from protoslice.storage import ObjectKey
from protoslice.versions import Policy
from protoslice.views import models

PLANNER: Final = _core.Plan.VERSION
"""The version of the planner that makes the chunks of new stores."""
KEPT: Final = _core.Plan.KEPT_VERSION
"""The version of plans that were kept from chunked roots."""
MERGED: Final = _core.Plan.MERGED_VERSION
"""The version of plans that were made from chunk sizes for chunked roots."""
_TRIES: Final = 8
_FOUND: Final = 100
"""Largest number of files of a store whose paths are indexed, so that a search finds the store."""


def policy_of(request: IngestRequest, root: Root) -> Policy:
    """Return the facts that determine a store's id together with its files."""
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


def _planner(prepared: RootRecords) -> int:
    if prepared.kept:
        return KEPT
    return MERGED if prepared.merged else PLANNER


async def drafted(
    request: IngestRequest, received: Sequence[IngestedFile], root: Root, *, objects: NewObjects, worker: Worker
) -> Manifest:
    """Return the manifest of a store that consists of the files `received` and of `root`; all objects are durable."""
    prepared = root.prepared
    kept = {"index": prepared.index, "plan": prepared.plan, "image": prepared.image} if prepared else {}
    schema = prepared.schema if prepared else None
    if schema is not None:
        # The schema of a bundled type is stored too, because a later version may bundle another schema.
        kept["schema"] = schema.canonical
    records = {name: data for name, data in kept.items() if data is not None}

    async def beside(name: str) -> ObjectKey:
        return await objects.put(await worker.run_if_large(len(records[name]), lambda: with_digest(records[name])))

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
    return await worker.run_if_large(manifest.weight, manifest.named)


async def publish(space: Space, manifest: Manifest, request: IngestRequest, objects: NewObjects) -> Created:
    """Publish a store and its tags. If the store exists, only set the tags; if it exists but is damaged, replace it."""
    report = None
    if request.report or request.strict:
        report = await _report(space, manifest, strict=request.strict)
    report = report if request.report else None
    new = await space.worker.run_if_large(manifest.weight, lambda: _new_store(manifest, request, objects))
    replaces: int | None = None
    for _ in range(_TRIES):
        with objects.publishing():
            done = await space.table.publish(new, request.tags, replaces=replaces)
        space.tags.invalidate(request.tags)
        if done.created:
            objects.kept(new.own)
            return Created(manifest.as_store(sorted(set(request.tags)), done.uploader), True, report)
        there = await _sound(space, done.row)
        replaces = None if there is not None else done.row.id
        if there is not None:
            with suppress(NotFound):  # another request has just removed the store
                return await _tagged(space, there, request, report)
    raise StorageUnavailable(f"The store {manifest.id} is being changed by other requests: try again")


async def find_existing(space: Space, store_id: str, request: IngestRequest) -> Created | None:
    """Return the existing store with this id; return None if it does not exist, or if the request needs a report."""
    if request.report or request.strict:
        return None
    try:
        return await _tagged(space, await space.manifests.get(store_id), request, None)
    except (NotFound, IntegrityError):
        return None


async def _tagged(space: Space, there: Manifest, request: IngestRequest, report: ModelReport | None) -> Created:
    if request.tags:
        await space.tags.put(request.tags, there.id)
    return Created(await space.pages.described(there, keep=not request.of_commit), False, report)


async def _sound(space: Space, row: StoreRow) -> Manifest | None:
    """Return the manifest of an existing store, or None if the store is damaged."""
    try:
        manifest = await space.manifests.of(row)
    except IntegrityError:
        return None
    verify = space.shared.options.verify_reads
    return manifest if await is_sound(space.storage, manifest, space.worker, verify=verify) else None


async def _report(space: Space, manifest: Manifest, *, strict: bool) -> ModelReport:
    """Report on a model before its store is visible.

    Raise `UnsoundModel` if `strict` is True and the model has a problem.
    """
    opened = await space.assemble(manifest)
    try:
        report = await models.report(opened, compare=strict)
    finally:
        opened.close()
    if strict and report.problem is not None:
        raise UnsoundModel(report.problem)
    return report


def _new_store(manifest: Manifest, request: IngestRequest, objects: NewObjects) -> StoreDraft:
    ids = manifest.object_ids
    own = objects.own(sorted(ids))
    return StoreDraft(
        id=manifest.row,
        digest=manifest.id,
        type=manifest.shown_type,
        size=sum(file.size for file in manifest.files),
        held=sum(len(each.held or b"") for stored in manifest.stored for each in stored.objects),
        created=microseconds(manifest.created),
        manifest=manifest.encode(),
        weight=manifest.weight,
        own=own,
        shared=ids - {each.id for each in own},
        digests=found_by_digest(manifest),
        of_commits=request.of_commit,
        paths=list(dict.fromkeys(filter(None, (manifest.root, *(each.path for each in manifest.files[:_FOUND]))))),
    )

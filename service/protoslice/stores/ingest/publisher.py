"""From a manifest to a store that exists, with its tags."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from protoslice.catalog.stores import StoreDraft, StoreRow, StoreTable
from protoslice.concurrency.executor import Worker
from protoslice.errors import IntegrityError, NotFound, StorageUnavailable, UnsoundModel
from protoslice.facts import ModelReport
from protoslice.stores.catalog.files import found_by_digest
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.pages import StorePages
from protoslice.stores.clock import microseconds
from protoslice.stores.manifest import Manifest
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.requests import Created, IngestRequest
from protoslice.stores.tag_cache import TagCache
from protoslice.stores.writing.new_objects import NewObjects

_TRIES: Final = 8
_FOUND: Final = 100
"""Files of a store by which it is found."""


class Publisher:
    """Publishes stores of one space."""

    def __init__(
        self,
        table: StoreTable,
        manifests: Manifests,
        tags: TagCache,
        pages: StorePages,
        worker: Worker,
        assemble: Callable[[Manifest], Awaitable[OpenStore]],
        is_sound: Callable[[Manifest], Awaitable[bool]],
    ) -> None:
        """`assemble` opens the store of a manifest, which may be unpublished."""
        self._table = table
        self._manifests = manifests
        self._tags = tags
        self._pages = pages
        self._worker = worker
        self._assemble = assemble
        self._is_sound = is_sound

    async def publish(self, manifest: Manifest, request: IngestRequest, objects: NewObjects) -> Created:
        """Publish a store and its tags, unless it exists; one that is damaged is replaced."""
        report = None
        if request.report or request.strict:
            report = await self._report(manifest, strict=request.strict)
        report = report if request.report else None
        new = await self._worker.sized(manifest.weight, lambda: _new_store(manifest, request, objects))
        replaces: int | None = None
        for _ in range(_TRIES):
            with objects.publishing():
                done = await self._table.publish(new, request.tags, replaces=replaces)
            self._tags.invalidate(request.tags)
            if done.created:
                objects.kept(new.own)
                return Created(manifest.as_store(sorted(set(request.tags)), done.uploader), True, report)
            there = await self._sound(done.row)
            replaces = None if there is not None else done.row.id
            if there is not None:
                with suppress(NotFound):  # it was removed at the same time
                    return await self._tagged(there, request, report)
        raise StorageUnavailable(f"The store {manifest.id} is being changed by other requests: try again")

    async def known(self, store_id: str, request: IngestRequest) -> Created | None:
        """Return the store of content that a sender described; None if there is none, and for a report."""
        if request.report or request.strict:
            return None
        try:
            return await self._tagged(await self._manifests.get(store_id), request, None)
        except (NotFound, IntegrityError):
            return None

    async def _tagged(self, there: Manifest, request: IngestRequest, report: ModelReport | None) -> Created:
        if request.tags:
            await self._tags.put(request.tags, there.id)
        return Created(await self._pages.described(there, keep=not request.of_commit), False, report)

    async def _sound(self, row: StoreRow) -> Manifest | None:
        """Return the manifest of a store that is there; None for a damaged store."""
        try:
            manifest = await self._manifests.of(row)
        except IntegrityError:
            return None
        return manifest if await self._is_sound(manifest) else None

    async def _report(self, manifest: Manifest, *, strict: bool) -> ModelReport:
        """Report on a model before its store is visible.

        `UnsoundModel` when `strict` and the model has a problem.
        """
        opened = await self._assemble(manifest)
        try:
            report = await opened.report(compare=strict)
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

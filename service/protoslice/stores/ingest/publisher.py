"""From a draft to a store that is there, with its tags."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from protoslice.errors import Conflict, IntegrityError, NotFound, UnsoundModel
from protoslice.facts import ModelReport, Store
from protoslice.storage import Storage
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.pages import TAGS_SHOWN, StorePages
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.ingest.abandoned import drop_outrun
from protoslice.stores.ingest.persist import StoreDraft
from protoslice.stores.layout.fresh import put_all_new
from protoslice.stores.layout.indexes import borne
from protoslice.stores.manifest import Manifest
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.requests import Created, IngestRequest


class Publisher:
    """Publishes stores of one storage."""

    def __init__(
        self,
        storage: Storage,
        claims: Claims,
        manifests: Manifests,
        tags: Tags,
        pages: StorePages,
        assemble: Callable[[Manifest], Awaitable[OpenStore]],
        *,
        bears_tags: bool = True,
    ) -> None:
        """`assemble` opens the store of a manifest, which may be unpublished; see `Stores` for `bears_tags`."""
        self._bears_tags = bears_tags
        self._storage = storage
        self._claims = claims
        self._manifests = manifests
        self._tags = tags
        self._pages = pages
        self._assemble = assemble

    async def publish(self, draft: StoreDraft, request: IngestRequest) -> Created:
        """Publish a store unless it exists, then set its tags."""
        manifest, beside = draft.manifest, draft.beside
        if self._bears_tags:
            manifest = replace(manifest, tags=borne(request.tags))
        report = None
        if request.report or request.strict:
            await put_all_new(self._storage, beside)  # the report reads the index
            beside, report = {}, await self._report(manifest, strict=request.strict)
        there = await self._manifests.publish(manifest, beside)
        created = there.attempt == manifest.attempt
        report = report if request.report else None
        if not created:
            await drop_outrun(self._storage, self._claims, manifest)
            return Created(await self._tagged(there, request), False, report)
        set_now = {tag: await self._tag_new(tag, manifest) for tag in request.tags}
        return Created(manifest.as_store(sorted(set_now)), True, report)

    async def known(self, store_id: str, request: IngestRequest) -> Created | None:
        """The store of content that a sender told; None where it may not stay, and for a report."""
        if request.report or request.strict:
            return None
        try:
            there = await self._manifests.get(store_id)
            found = {tag.name: tag for tag in await self._pages.lasting(there)}  # before tags are set to it
        except (NotFound, IntegrityError):
            return None
        if request.tags:
            await self._tags.check_room(there, request.tags)
        for name in request.tags:
            found[name] = await self._tag_new(name, there, found.get(name))
        return Created(there.as_store(sorted(found)[:TAGS_SHOWN]), False, None)

    async def _tagged(self, there: Manifest, request: IngestRequest) -> Store:
        """A store that was there, with the tags of a request, even if somebody removes it right now."""
        if request.tags:
            await self._tags.check_room(there, request.tags)
        set_now = {tag: await self._tag_new(tag, there) for tag in request.tags}
        return await self._pages.described(there, set_now)

    async def _tag_new(self, name: str, store: Manifest, there: StoredTag | None = None) -> StoredTag:
        """Set a tag of a request; one that is `there`, as it was read just now, by fewer calls."""
        if there is not None:
            with suppress(Conflict):
                return (await self._tags.put(name, store, if_match=there.etag, if_none_match=False))[0]
        return (await self._tags.put(name, store, if_match=None, if_none_match=False))[0]

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

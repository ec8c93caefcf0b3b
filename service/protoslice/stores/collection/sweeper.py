"""Sweeper of attempts: finds objects that no store can need, and deletes them once the claims agree."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Set
from dataclasses import dataclass
from typing import Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.storage import ObjectStat, Storage
from protoslice.stores.catalog.claims import CLAIM_BYTES, Claims
from protoslice.stores.collection.census import Census
from protoslice.stores.collection.holders import Holders, UnreadableManifest
from protoslice.stores.collection.stale_records import StaleRecords
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import place_in_time
from protoslice.stores.layout.references import Reference, names_digest
from protoslice.stores.manifest import STORE, Manifest
from protoslice.stores.uploads.records import UploadRecords

_BATCH: Final = 64
"""Suspects that are held in memory, with their listed objects, and judged side by side."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    name: str
    objects: list[ObjectStat]

    @property
    def is_narrowed(self) -> bool:
        """True when the claim lists what is left."""
        return any(item.key.segments[-1] == "claim" and item.size > CLAIM_BYTES for item in self.objects)


class Sweeper:
    """Deletes old attempts that nothing holds, and old objects in held attempts that no holder names.

    A listing clears an attempt whose references all are those of present stores, one of which names exactly the objects
    that are there; all must, once the claim has been narrowed. Manifests are read of the others only, the suspects.
    """

    def __init__(
        self,
        storage: Storage,
        census: Census,
        holders: Holders,
        outdated: StaleRecords,
        records: UploadRecords,
        *,
        before: float,
        dry_run: bool,
    ) -> None:
        self._storage = storage
        self._census = census
        self._holders = holders
        self._outdated = outdated
        self._records = records
        self._claims = Claims(storage)
        self._before = before
        self._dry_run = dry_run
        self.objects = 0
        self.bytes = 0
        self.listed_bytes = 0
        """Bytes of all objects of uploads that were listed, deleted ones included."""
        self.unreadable: str | None = None
        """Key of a damaged manifest, for which the objects that it may need were left; else None."""

    async def sweep(self, uploads: set[str]) -> None:
        """Go through all attempts but `uploads`, those of resumable uploads that are not over."""
        suspects: list[_Attempt] = []
        async for attempt in _attempts(self._storage):
            self.listed_bytes += sum(item.size for item in attempt.objects if not keys.is_note(item.key))
            if self._is_suspect(attempt) and attempt.name not in uploads:
                suspects.append(attempt)
            if len(suspects) == _BATCH:
                await self._drop(suspects)
                suspects = []
        await self._drop(suspects)
        if not self._dry_run:
            await self._mend()

    def _is_suspect(self, attempt: _Attempt) -> bool:
        references = [Reference.parse(item.key) for item in attempt.objects if keys.is_reference(item.key)]
        current = [each for each in references if self._census.is_current(each.place)]
        for each in current:
            self._census.see(each)
        if current and len(current) == len(references):
            named, there = {each.names for each in current}, names_digest(attempt.objects)
            # A store that names less shares what another has. After that one is gone, it may name what is gone too.
            if named == {there} or (there in named and not attempt.is_narrowed):
                return False
        return any(self._is_old(item) for item in attempt.objects) if references else self._is_over(attempt)

    async def _drop(self, suspects: list[_Attempt]) -> None:
        """Delete what is not needed of `suspects`."""
        found = [item for items in await map_concurrently(self._unneeded, suspects) for item in items]
        content = [item for item in found if not keys.is_note(item.key)]
        self.objects += len(content)
        self.bytes += sum(item.size for item in content)
        if self._dry_run:
            return
        # Claims last: while objects of an attempt exist, its doomed claim must be there too.
        for last in (False, True):
            part = [item.key for item in found if (item.key.segments[-1] == "claim") is last]
            await map_concurrently(self._storage.delete, part)

    async def _unneeded(self, attempt: _Attempt) -> list[ObjectStat]:
        try:
            held = await self._holders.of_attempt(attempt.name, mend=not self._dry_run)
            if held:
                return await self._superfluous(attempt, held)
            if not self._is_over(attempt):
                return []
            return attempt.objects if self._dry_run or await self._left(attempt, held) == set() else []
        except UnreadableManifest as error:
            self.unreadable = self.unreadable or error.key
            return []

    async def _superfluous(self, attempt: _Attempt, held: list[Manifest]) -> list[ObjectStat]:
        """Old objects that no holder of an attempt names, and old references of manifests that are over."""
        named = _names(held, attempt)
        current = {held_by for manifest in held for held_by in (manifest.id, place_in_time(manifest))}
        old = [item for item in attempt.objects if self._is_old(item) and item.key.segments[-1] != "claim"]
        objects = [item for item in old if not keys.is_reference(item.key) and item.key.segments[-1] not in named]
        stale = [item for item in old if keys.is_reference(item.key) and not _is_of(current, item)]
        # A claim that allows the store of the attempt keeps the entries of a store that is gone, and its references.
        if not self._dry_run and (objects or (stale and STORE not in named)):
            left = await self._left(attempt, held)
            objects = [] if left is None else [item for item in objects if item.key.segments[-1] not in left]
        return objects + [item for item in stale if await self._outdated.is_over(item)]

    async def _left(self, attempt: _Attempt, held: list[Manifest]) -> Set[str] | None:
        """Names of the objects that stay in an attempt; None when anybody may need all of them.

        The claim is narrowed to what manifests name, unless others than those of `held` do by now.
        """
        claim = await self._claims.condemn(attempt.name)
        if claim is None:
            return None
        try:
            found = await self._still_held(attempt)
        except UnreadableManifest:
            await self._claims.revive(claim)
            raise
        if found is None or (found and not held):
            await self._claims.revive(claim)
            return None
        return await self._claims.narrow(claim, _names(found, attempt))

    async def _still_held(self, attempt: _Attempt) -> list[Manifest] | None:
        """Manifests that name objects of a condemned attempt; None for a resumable upload that is not over."""
        # Writers now see the condemned claim, so manifests read from here on decide; and an upload may have begun
        # since the listing of uploads, whose record is written first.
        if await self._records.exists(attempt.name):
            return None
        return await self._holders.of_attempt(attempt.name, mend=False)

    async def _mend(self) -> None:
        """Look at each store that lacks a reference, since its objects may be gone with it."""
        for prefix in self._census.incomplete():
            async for item in self._storage.iterate(keys.STORES, after=keys.store(prefix)):
                if not item.key.segments[-1].startswith(prefix):
                    break
                try:
                    await self._holders.mend(item.key.segments[-1])
                except UnreadableManifest as error:
                    self.unreadable = self.unreadable or error.key

    def _is_over(self, attempt: _Attempt) -> bool:
        """True when an attempt began, and its youngest object came, before the grace."""
        # One young object protects its attempt: the next file of a long upload may be on its way.
        return keys.began_at(attempt.name) < self._before and all(self._is_old(item) for item in attempt.objects)

    def _is_old(self, item: ObjectStat) -> bool:
        return item.modified.timestamp() < self._before


def _names(held: Iterable[Manifest], attempt: _Attempt) -> set[str]:
    """Names in an attempt that manifests need."""
    return {name for manifest in held for name in manifest.names_in(attempt.name)}


def _is_of(current: Collection[str], item: ObjectStat) -> bool:
    """True for the reference of a current place, or of an older version and a current store."""
    told = Reference.parse(item.key)
    return (told.place or told.store) in current


async def _attempts(storage: Storage) -> AsyncIterator[_Attempt]:
    """Each attempt with its objects, from one listing."""
    attempt = _Attempt("", [])
    async for item in storage.iterate(keys.OBJECTS):
        if item.key.segments[1] != attempt.name:
            if attempt.objects:
                yield attempt
            attempt = _Attempt(item.key.segments[1], [])
        attempt.objects.append(item)
    if attempt.objects:
        yield attempt

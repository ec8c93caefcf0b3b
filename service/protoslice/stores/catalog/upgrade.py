"""Upgrade of a storage from layout 1 or 2 to 3; rewrites small records only."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from protoslice import schema
from protoslice.concurrency.gather import each_concurrently, map_concurrently
from protoslice.errors import Conflict, IntegrityError, LimitExceeded, NotFound, Unsupported
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.catalog.files import entries_of_files
from protoslice.stores.catalog.manifests import is_retired
from protoslice.stores.catalog.piece_index import PieceIndex
from protoslice.stores.catalog.piece_table import TABLE, PieceTable
from protoslice.stores.catalog.removed import bury
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import Indexes, borne, place_in_time
from protoslice.stores.layout.references import references_of
from protoslice.stores.layout.version import MARK, UPGRADABLE, UPGRADING
from protoslice.stores.manifest import Manifest, upgraded


@dataclass(slots=True)
class UpgradeReport:
    """Counts of an upgrade, and the keys of manifests that could not be read and were left alone."""

    stores: int = 0
    tags: int = 0
    attempts: int = 0
    unreadable: tuple[str, ...] = ()

    def add(self, other: UpgradeReport, folder: ObjectKey) -> None:
        """Add the counts of a folder of the storage."""
        self.stores += other.stores
        self.tags += other.tags
        self.attempts += other.attempts
        self.unreadable += tuple(f"{folder}/{key}" for key in other.unreadable)


async def upgrade(storage: Storage) -> UpgradeReport:
    """Upgrade a storage to the present layout and rebuild its claims and indexes; idempotent.

    No service may use the storage meanwhile. Only small records are written; objects that hold files stay where they
    are. An interrupted upgrade is resumed by the next call.
    """
    mark = await _begin(storage)
    report = UpgradeReport()
    await _each_attempt(storage, report)
    tags, indexes = Tags(storage), Indexes(storage)
    async for tag in tags.each():
        await indexes.note_tag(tag.store, tag.name)
        report.tags += 1
    await each_concurrently(lambda item: _store(storage, tags, item, report), storage.iterate(keys.STORES))
    await each_concurrently(lambda item: _removal(storage, item, report), storage.iterate(keys.REMOVED))
    await storage.put(keys.MARKER, MARK, if_etag=mark)
    return report


async def _begin(storage: Storage) -> str:
    """Mark the storage as being upgraded, so that no service opens it; returns the mark's entity tag."""
    stat = await storage.stat(keys.MARKER)
    found = await storage.get_range(keys.MARKER, 0, stat.size, if_etag=stat.etag)
    if found not in UPGRADABLE:
        raise Unsupported("This storage has the layout of a later version of Protoslice: use that version")
    return await storage.put(keys.MARKER, UPGRADING, if_etag=stat.etag)


async def _each_attempt(storage: Storage, report: UpgradeReport) -> None:
    """Stake a claim for each attempt that has objects."""
    claims, last = Claims(storage), ""
    async for item in storage.iterate(keys.OBJECTS):
        attempt = item.key.segments[1]
        if attempt != last:
            await _stake(claims, attempt)
            report.attempts += 1
            last = attempt


async def _stake(claims: Claims, attempt: str) -> None:
    with suppress(Conflict):  # staked by an earlier, interrupted upgrade
        await claims.stake(attempt)


async def _store(storage: Storage, tags: Tags, item: ObjectStat, report: UpgradeReport) -> None:
    data = await storage.get_range(item.key, 0, item.size, if_etag=item.etag)
    if is_retired(data):
        return
    try:
        manifest = await _manifest(storage, data)
    except IntegrityError:
        report.unreadable += (item.key.text,)
        return
    found = [tag async for tag in tags.all_of(manifest.id, ())]
    renewed = replace(manifest, tags=borne(tag.name for tag in found), again=False)
    indexes = Indexes(storage)
    await indexes.add(renewed, references_of(renewed))
    files = entries_of_files(renewed, zip(renewed.files, renewed.objects, strict=True))
    await map_concurrently(lambda key: storage.put(key, files[key]), files)
    await _note_pieces(storage, renewed)
    if renewed.encode() != data:
        await storage.put(item.key, renewed.encode(), if_etag=item.etag)
    await indexes.renew(manifest, renewed, [tag.name for tag in found])
    await map_concurrently(lambda tag: tags.renew(tag, renewed), found)
    report.stores += 1


async def _note_pieces(storage: Storage, manifest: Manifest) -> None:
    """Write the entries of a store's pieces, where these are known."""
    with suppress(NotFound, IntegrityError):
        data = (await storage.get(keys.derived(manifest.id, TABLE))).data
        digests = PieceTable(unseal(data, "the pieces of a store"), ()).sampled()
        await PieceIndex(storage).add(place_in_time(manifest), digests)


async def _removal(storage: Storage, item: ObjectStat, report: UpgradeReport) -> None:
    """Turn a removed store's manifest of layout 1 into a tombstone."""
    if len(item.key.segments) != 2:
        return
    try:
        manifest = await _manifest(storage, await storage.get_range(item.key, 0, item.size))
    except IntegrityError:
        report.unreadable += (item.key.text,)
        return
    await bury(storage, manifest.id, manifest.encode(), ())
    await storage.delete(item.key)


async def _manifest(storage: Storage, data: bytes) -> Manifest:
    with suppress(IntegrityError):
        return Manifest.decode(data)
    raw = json.loads(unseal(data, "a store's manifest"))
    read_by = await _read_by(storage, raw)
    if read_by is not None and not raw["own_schema"]:
        # Version 1 did not store bundled types; the present bundled schema becomes the store's own.
        with suppress(Conflict):
            await storage.put_if_absent(keys.object_key(raw["attempt"], "schema"), seal(read_by.canonical))
    return upgraded(raw, read_by.fingerprint if read_by is not None else None)


async def _read_by(storage: Storage, raw: dict[str, Any]) -> schema.TypeSchema | None:
    """Schema that a version 1 store's root is read by.

    None when the root has no index or its type is unknown.
    """
    if not raw["type"] or not raw.get("indexed", True):
        return None
    own = []
    if raw["own_schema"]:
        key = keys.object_key(raw["attempt"], "schema")
        sealed = (await storage.get(key)).data
        own.append(schema.from_descriptor_set(unseal(sealed, "the schema of a store")))
    try:
        return schema.find(raw["type"], own).schema(raw["type"])
    except (Unsupported, LimitExceeded):
        return None

"""Manifests of a storage: lookup, publication, removal. A store exists exactly when its manifest does."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import run_concurrently
from protoslice.concurrency.lru import LruCache
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError, StorageUnavailable
from protoslice.storage import ObjectContent, ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.claims import Claims, Collected
from protoslice.stores.catalog.named_records import is_removal_mark
from protoslice.stores.catalog.removed import bury
from protoslice.stores.layout import keys
from protoslice.stores.layout.fresh import put_all_new
from protoslice.stores.layout.indexes import Indexes
from protoslice.stores.layout.references import references_of
from protoslice.stores.manifest import Manifest

T = TypeVar("T")

TRIES = 8
"""Attempts at a read or compare-and-set that keeps losing against concurrent writers."""


CACHED_BYTES = 16 << 20
"""Bytes of manifests in the cache, about: some five thousand of one small file."""
_ENTRY = 1000
_FILE = 400
"""Bytes of memory of a cached manifest and of each of its files, beside its encoded size."""
_CACHED_MANIFESTS = 1 << 20
PEEK_BYTES = 64 << 10
"""Bytes of a manifest that a list reads at first; nearly all manifests are shorter."""
_RETIRED = b"retired "
"""Prefix of what takes the place of a manifest when a collector took the objects first."""


def is_retired(data: bytes) -> bool:
    """True when a manifest was withdrawn: no such store exists."""
    return data.startswith(_RETIRED)


class Manifests:
    """Manifests by id, cached by entity tag, since other replicas remove and replace them."""

    def __init__(
        self,
        storage: Storage,
        claims: Claims,
        worker: Worker,
        is_sound: Callable[[Manifest], Awaitable[bool]],
        *,
        cached_bytes: int = CACHED_BYTES,
    ) -> None:
        self._storage = storage
        self._claims = claims
        self._indexes = Indexes(storage)
        self._worker = worker
        self._is_sound = is_sound
        self._cache: LruCache[str, tuple[ObjectStat, Manifest]] = LruCache(most=_CACHED_MANIFESTS, room=cached_bytes)

    async def get(self, store_id: str) -> Manifest:
        """The manifest of a store; `NotFound` when no such store exists."""
        _, manifest = await self._look(store_id, limit=None)
        assert manifest is not None, "without a limit all of it is read"
        return manifest

    async def peek(self, store_id: str) -> tuple[int, Manifest | None]:
        """Size of a store's manifest, and the manifest, or None when it is long and not in memory.

        The size is about that of the JSON that shows the store. `NotFound` when no such store exists.
        """
        return await self._look(store_id, limit=PEEK_BYTES)

    async def _look(self, store_id: str, limit: int | None) -> tuple[int, Manifest | None]:
        key, cached = keys.store(store_id), self._cache.get(store_id)
        try:
            if cached is None:
                found = await self._storage.get(key, limit=limit)
            else:
                changed = await self._storage.get_if_changed(key, cached[0].etag, limit=limit)
                if changed is None:
                    return cached[0].size, cached[1]
                found = changed
            return found.stat.size, await self._decoded(found) if found.is_whole else None
        except NotFound:
            self._cache.drop(store_id)
            raise NotFound(f"No store {store_id}") from None

    async def _decoded(self, found: ObjectContent) -> Manifest:
        """The manifest in an object, which is cached; `NotFound` when it was withdrawn."""
        store_id = found.stat.key.segments[-1]
        if is_retired(found.data):
            raise NotFound(f"No store {store_id}")
        manifest = await self._worker.sized(len(found.data), lambda: Manifest.decode(found.data))
        if manifest.id != store_id:
            raise IntegrityError(f"the manifest of store {store_id} belongs to another store")
        self._cache.put(store_id, (found.stat, manifest), found.stat.size + _ENTRY + _FILE * len(manifest.files))
        return manifest

    async def publish(self, manifest: Manifest, beside: Mapping[ObjectKey, bytes] | None = None) -> Manifest:
        """Publish a store atomically and return the manifest now in its place, maybe an earlier sound one.

        `beside` holds new objects that the manifest relies on. They and the index entries are written first, side by
        side. A manifest that is not sound is replaced. Raises `Collected` when garbage collection took objects that the
        manifest names.
        """
        data = await self._worker.sized(manifest.weight, manifest.encode)
        references = await self._worker.sized(manifest.weight, lambda: references_of(manifest))
        await run_concurrently(
            lambda: self._indexes.add(manifest, references), lambda: put_all_new(self._storage, beside or {})
        )
        # To its end even if the client leaves: a manifest that came too late would stay, with nobody to take it back.
        there = await _uncancelled(self._settled(manifest, data))
        if there.created != manifest.created:
            await self._indexes.drop(manifest)
        return there

    async def _settled(self, manifest: Manifest, data: bytes) -> Manifest:
        replaced: bytes | None = None
        for _ in range(TRIES):
            placed = await self._placed(manifest, data)
            if placed is None:  # if an answer was lost, the manifest may have been there and be gone
                data = replace(manifest, again=True).encode()
                continue
            there, etag = placed
            if there.attempt == manifest.attempt:  # ours, even after a `Conflict`: the answer to our write was lost
                await self._keep(manifest, etag, replaced)
                return manifest
            if await self._holds(there) and await self._is_sound(there):
                return there
            await self._claims.hold(manifest.attempts, manifest.names_in)  # a writer that is too late replaces nothing
            await self._indexes.release(there)
            await self._indexes.mark(manifest)  # entries of the new one do not bear the tags of the old
            data = replace(manifest, again=True).encode()
            replaced = await self._replace(manifest.id, data, etag)
        raise StorageUnavailable(f"the store {manifest.id} is being changed by other requests: try again")

    async def _placed(self, manifest: Manifest, data: bytes) -> tuple[Manifest, str] | None:
        """The manifest in the store's place and its entity tag; `manifest` itself when the place was free.

        None when a concurrent change requires another look.
        """
        key = keys.store(manifest.id)
        try:
            return manifest, await self._storage.put_if_absent(key, data)
        except Conflict:
            pass
        with suppress(NotFound, Conflict):
            found = await self._storage.get(key)
            try:
                return await self._decoded(found), found.stat.etag
            except NotFound:  # withdrawn or removed, maybe by one who is about to delete what lies there
                await self._indexes.mark(manifest)
            except IntegrityError:  # a damaged manifest does not keep its place; its entries have to be looked for
                await self._indexes.release_all(manifest.id)
            await self._claims.hold(manifest.attempts, manifest.names_in)
            again = replace(manifest, again=True)
            return again, await self._storage.put(key, again.encode(), if_etag=found.stat.etag)
        return None

    async def _keep(self, manifest: Manifest, etag: str, replaced: bytes | None = None) -> None:
        """Protect a published manifest's objects from collectors.

        Withdraw it and raise `Collected` if too late. The unsound manifest that it `replaced` comes back then.
        """
        try:
            # Retried: a lost answer must not withdraw a manifest whose objects are safe.
            await _insisting(lambda: self._claims.hold(manifest.attempts, manifest.names_in))
        except Collected:
            if replaced is None:
                await self._retire(manifest, etag)
            else:
                await self._put_back(manifest.id, replaced, etag)
            raise

    async def _put_back(self, store_id: str, content: bytes, etag: str) -> None:
        """Publish a manifest again, in place of the one with this tag; withdraw it if that is too late."""
        self._cache.drop(store_id)
        with suppress(ProtosliceError):
            manifest = replace(Manifest.decode(content), again=True)
            etag = await _insisting(lambda: self._storage.put(keys.store(store_id), manifest.encode(), if_etag=etag))
            with suppress(Collected):
                await self._keep(manifest, etag)

    async def check_lasting(self, manifest: Manifest) -> None:
        """Raise `NotFound` when the objects of a manifest that was read have been collected."""
        if not await self._holds(manifest):
            raise NotFound(
                f"Garbage collection deleted objects of store {manifest.id} before its upload was complete: send "
                "its files again"
            )

    async def _holds(self, manifest: Manifest) -> bool:
        """True when the objects of an existing manifest are protected from collectors."""
        try:
            await self._claims.hold(manifest.attempts, manifest.names_in)
        except Collected:
            return False
        return True

    async def _replace(self, store_id: str, data: bytes, etag: str) -> bytes | None:
        """Replace an unsound manifest by compare-and-set, and return it; None when another writer was first."""
        key = keys.store(store_id)
        with suppress(NotFound, Conflict):
            found = await self._storage.get(key)
            if found.stat.etag != etag:
                return None
            # Buried for its readers, and so that a collector knows which objects to delete.
            await bury(self._storage, store_id, found.data, ())
            await self._storage.put(key, data, if_etag=etag)
            return found.data
        return None

    async def _retire(self, manifest: Manifest, etag: str) -> None:
        """Withdraw this writer's manifest, whose id no client has seen yet, unless it has been replaced."""
        self._cache.drop(manifest.id)
        with suppress(ProtosliceError):
            await withdraw(self._storage, manifest, etag)

    async def remove(self, store_id: str, tags: Sequence[str], untag: Callable[[], Awaitable[object]]) -> None:
        """Remove a store atomically, then its tags by `untag`; the manifest and `tags` go into a tombstone.

        Objects stay for the grace period.
        """
        key, mark, may_delete = keys.store(store_id), _new_mark(), False
        for _ in range(TRIES):
            found = await self._found(store_id)
            if found.data == mark:  # our own write, whose answer was lost
                break
            if is_retired(found.data):
                raise NotFound(f"No store {store_id}")
            manifest = await self._released(store_id, found.data)
            may_delete = manifest is not None and not manifest.again
            await bury(self._storage, store_id, found.data, tags)
            self._cache.drop(store_id)
            with suppress(Conflict):
                await self._storage.put(key, mark, if_etag=found.stat.etag)
                break
        else:
            raise StorageUnavailable(f"the store {store_id} is being changed by other requests: try again")
        # The mark stays until the tags have gone: a store that comes to its place is looked at in full.
        await untag()
        await self._clear(key, mark, may_delete=may_delete)

    async def _found(self, store_id: str) -> ObjectContent:
        try:
            return await self._storage.get(keys.store(store_id))
        except NotFound:
            raise NotFound(f"No store {store_id}") from None

    async def _released(self, store_id: str, content: bytes) -> Manifest | None:
        """`Indexes.release` of a store that is to be removed; its manifest, None for a damaged one."""
        try:
            manifest = await self._worker.sized(len(content), lambda: Manifest.decode(content))
        except IntegrityError:
            await self._indexes.release_all(store_id)
            return None
        await self._indexes.release(manifest)
        return manifest

    async def _clear(self, key: ObjectKey, mark: bytes, *, may_delete: bool) -> None:
        """Delete the mark of a removal; one that stays counts as no manifest.

        Where the storage does not delete on a condition, a store that comes to this place meanwhile may be hit. So it
        notes that a mark was there (`Manifest.again`), and the next remover deletes nothing: of all stores that come,
        one that comes to an empty place is safe.
        """
        with suppress(ProtosliceError):
            if self._storage.abilities.conditional_delete:
                found = await self._storage.get(key)
                if found.data == mark:
                    await self._storage.delete(key, if_etag=found.stat.etag)
            elif may_delete:
                await self._storage.delete(key)

    async def restore(self, manifest: Manifest) -> Manifest:
        """Publish the manifest of a removed store again; see `publish`."""
        await self._indexes.mark(manifest)  # since it was removed, and even if a collector has deleted that mark
        return await self.publish(replace(manifest, again=True))

    async def borne(self, store_id: str) -> Sequence[str]:
        """Tags that the index entries of a store bear whose manifest cannot be read."""
        return await self._indexes.release_all(store_id)

    async def starting_with(self, prefix: str) -> str:
        """The only store id that begins with `prefix`.

        `InvalidInput` when several do, `NotFound` when none does.
        """
        found: list[str] = []
        async for item in self._storage.iterate(keys.STORES, after=keys.store(prefix), limit=2):
            if not item.key.segments[-1].startswith(prefix) or len(found) > 1:
                break
            if not is_removal_mark(item):
                found.append(item.key.segments[-1])
        if len(found) > 1:
            raise InvalidInput(f"Several ids start with {prefix!r}: give more digits")
        if not found:
            raise NotFound(f"No store has an id that starts with {prefix!r}")
        return found[0]


def _new_mark() -> bytes:
    """Content that takes the place of a manifest, in the size of all removal marks."""
    return _RETIRED + secrets.token_hex(8).encode()


async def withdraw(storage: Storage, manifest: Manifest, etag: str) -> None:
    """Take back the manifest of a store whose objects were collected; `Conflict` unless it has this tag.

    What remains where the storage does not delete on a condition counts as no manifest.
    """
    await Indexes(storage).release(manifest)
    key, mark = keys.store(manifest.id), _new_mark()
    etag = await _insisting(lambda: storage.put(key, mark, if_etag=etag))
    if storage.abilities.conditional_delete:
        await storage.delete(key, if_etag=etag)


async def _insisting(call: Callable[[], Awaitable[T]]) -> T:
    """The result of `call`, tried up to three times on `StorageUnavailable`."""
    for _ in range(2):
        with suppress(StorageUnavailable):
            return await call()
    return await call()


async def _uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which goes on to its end though the caller is cancelled."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # a caller that has left is not told
    return await asyncio.shield(task)

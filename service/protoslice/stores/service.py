"""The operations on the stores of a space, and on spaces, which are isolated from each other; HTTP is not involved."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final
from weakref import WeakValueDictionary

from protoslice.catalog.marker import check_storage
from protoslice.catalog.paging import ResultPage
from protoslice.catalog.requests import Created, IngestRequest
from protoslice.catalog.spaces import DEFAULT_SPACE, Quota, Quotas, SpaceRow, SpaceTable
from protoslice.catalog.store_lists import StoreQuery
from protoslice.catalog.syntax import check_tag, is_id, is_id_prefix
from protoslice.catalog.tags import TAGS_OF_A_STORE, StoredTag
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.results import SingleFlight
from protoslice.database import Database
from protoslice.database.transactions import now
from protoslice.errors import Conflict, InvalidInput, NotFound, Unsupported
from protoslice.facts import PiecePlace, Removed, Restored, Store
from protoslice.ingest.external import register
from protoslice.ingest.ingest import Ingest
from protoslice.ingest.root import check_kept
from protoslice.serving.finding import FileRef, StoredPath, refs_of
from protoslice.serving.shared import Shared, Space
from protoslice.serving.store_options import StoreOptions
from protoslice.storage import Storage, probe
from protoslice.stores.collection import GRACE_SECONDS
from protoslice.uploads import Uploads
from protoslice.views.pieces import PieceSearch, locate

_log = logging.getLogger(__name__)

Names = Callable[["Stores", str], Awaitable[str]]
"""Function that returns the store id for a reference with a slash, such as `owner/name@main`.

It raises `NotFound` for an unknown reference.
"""


class Stores(Space):
    """All stores of one space; several processes may use the same storage and catalogue."""

    def __init__(self, shared: Shared, space: str = DEFAULT_SPACE, *, names: Names | None = None) -> None:
        super().__init__(shared, space)
        self._names = names
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.uploads = Uploads(self)
        """The resumable uploads of the space."""
        self._search = PieceSearch(self.files_by_digest, self.table, self.open_store)

    @classmethod
    async def open(
        cls,
        storage: Storage,
        database: Database,
        options: StoreOptions | None = None,
        *,
        create: bool = True,
        names: Names | None = None,
    ) -> Stores:
        """Open the stores of the default space in `storage`, with their records in `database`.

        If the storage does not accept writes, the database becomes read-only. If `create` is True, a storage without
        a marker is marked as belonging to the database; otherwise, raise `NotFound`. `names` resolves references that
        contain a slash.
        """
        try:
            await probe(storage)
        except Unsupported as error:
            database.read_only = error.message
            _log.warning("the storage is opened read-only: %s", error.message)
        await check_storage(storage, database, mark=create and database.read_only is None)
        options = options or StoreOptions()
        check_kept(options.rules)
        return cls(Shared(storage, database, options), names=names)

    def of_space(self, space: str) -> Stores:
        """Return the stores of another space, which shares storage, database, threads and memory with this space."""
        return Stores(self.shared, space, names=self._names)

    async def close(self) -> None:
        """Close everything that the stores of all spaces share."""
        await self.shared.close()

    def turn(self, name: str) -> asyncio.Lock:
        """Return the lock of a name in this space, for work that should not run twice at the same time."""
        return self._turns.setdefault(name, asyncio.Lock())

    async def ingest(self, request: IngestRequest) -> Ingest:
        """Return a new ingest, which the caller uses as an async context manager.

        Raise `QuotaExceeded` if the space may have no more stores.
        """
        return await Ingest.begin(self, request)

    async def register(self, files: Mapping[str, str], request: IngestRequest) -> Created:
        """Create a store from external objects in allowed places; `files` maps paths in the store to URIs."""
        return await register(self, files, request)

    async def get(self, ref: str) -> Store:
        """Return the store that `ref` names: an id or its first digits, a tag, or a name in a repository."""
        if is_id_prefix(ref) or "/" in ref:
            return await self.pages.get(await self.resolve(ref))
        return await self.pages.tagged(check_tag(ref))

    async def resolve(self, ref: str, *, trusting: bool = False) -> str:
        """Return the id of the store that `ref` names; `ref` may be a name in a repository. See `Space.resolve`."""
        if "/" in ref and self._names is not None:
            return await self._names(self, ref)
        return await super().resolve(ref, trusting=trusting)

    async def list(
        self, query: StoreQuery | None = None, *, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[Store]:
        """Return a page of the stores that match `query`; if `query` is None, a page of all stores, newest first."""
        return await self.pages.page(query or StoreQuery(), limit=limit, cursor=cursor)

    async def delete(
        self,
        ref: str,
        check: Callable[[str, Collection[str]], Awaitable[None]] | None = None,
        *,
        if_match: str | None = None,
    ) -> Removed:
        """Remove a store, which `ref` names by its id or first digits, and the tags that point at it.

        The objects remain for the grace period, so that readers can finish and `restore` can undo the removal. `check`
        receives the id and the tags before anything is removed; it refuses the removal by raising an error. Raise
        `Conflict` if `ref` is a tag. Raise `Changed` if `if_match` is neither None nor the store's version.
        """
        if not is_id_prefix(ref):
            await self.resolve(ref)
            raise Conflict(
                f"{ref!r} is a name of a store: to remove only the tag, remove it as a tag; to remove the store, give "
                "its id"
            )
        store_id = await self.resolve(ref)
        if check is not None:
            tags, _ = await self.tags.page(TAGS_OF_A_STORE, store=store_id)
            await check(store_id, [tag.name for tag in tags])
        try:
            removed = await self.table.remove(store_id, if_match=if_match)
        finally:
            self.shared.open_stores.forget(self.space, store_id)
        if removed is None:
            raise NotFound(f"No store {store_id}")
        self.tags.invalidate(removed)
        return Removed(store_id, tuple(removed), now() + timedelta(seconds=GRACE_SECONDS))

    async def version(self, store_id: str) -> str | None:
        """Return a text that changes with a store's description and tags, or None if the store does not exist."""
        return await self.table.version(store_id)

    async def removed(self, *, limit: int = 100, cursor: str | None = None) -> ResultPage[Removed]:
        """Return a page of stores whose removal can be undone, latest removal first."""
        return await self.pages.removed(timedelta(seconds=GRACE_SECONDS), limit=limit, cursor=cursor)

    async def restore(self, store_id: str) -> Restored:
        """Undo the last removal of a store, and set its tags again, except tags that now point at another store.

        `store_id` may also be the first digits of an id, or a tag that the store had when it was removed.
        """
        tag = "" if is_id_prefix(store_id) else check_tag(store_id)
        if tag:
            last = await self.table.last_with(tag)
            if last is None:
                raise NotFound(f"No removed store had the tag {tag!r}: give the id of the removed store")
            if await self.table.get(last) is not None:
                raise Conflict(
                    f"The store that had the tag {tag!r} is not removed: point the tag at the store {last} again"
                )
            store_id = last
        elif not is_id(store_id):
            store_id = await self.manifests.removed(store_id)
        found = await self.table.restore(store_id)
        if found is None:
            raise NotFound(f"Store {store_id} was not removed, or garbage collection has deleted its data")
        store = await self.pages.described(await self.manifests.of(found.row))
        self.tags.invalidate(store.tags)
        return Restored(store, tuple(found.taken))

    async def files(self, ref: str) -> Mapping[str, FileRef]:
        """Return the files, by path, of the store that `ref` names, in the form that `Ingest.take` accepts.

        Leave out files that are external objects.
        """
        return refs_of(await self.manifests.get(await self.resolve(ref)))

    async def file_refs(self, files: Mapping[str, StoredPath]) -> dict[str, FileRef]:
        """Return references to files of stores, by their paths in a new store, in the form that `Ingest.take` accepts.

        Raise `Conflict` if a file is an external object, whose bytes no store holds.
        """
        stores = sorted({store for store, _ in files.values()})
        refs = dict(zip(stores, await map_concurrently(self.files, stores), strict=True))
        for store, path in files.values():
            if path not in refs[store]:
                raise Conflict(f"file {path!r} of store {store} is registered in place and cannot be reused: upload it")
        return {path: refs[store][old] for path, (store, old) in files.items()}

    async def put_tag(
        self, name: str, store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> tuple[StoredTag, bool]:
        """Point a tag at the store that `store` names; return the tag, and True if it is new. See `Tags.put`."""
        check_tag(name)
        store_id = await self.resolve(store)
        return (await self.tags.put([name], store_id, if_match=if_match, if_none_match=if_none_match))[0]

    async def bases(self, tags: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the bases, which are stores whose bytes uploads with these tags may share.

        See `TagCache.version_before`.
        """
        found = await map_concurrently(self.tags.version_before, dict.fromkeys(tags))
        return tuple(dict.fromkeys(store for store in found if store is not None))

    async def locate(
        self, wanted: Mapping[str, int], refs: Sequence[str] | None, bases: Sequence[str] = ()
    ) -> Sequence[PiecePlace]:
        """Return places of the pieces in `wanted`, which maps digests to sizes.

        Search the stores `refs`; if `refs` is None, search all stores. Whole files of at least 1 MiB are found in all
        stores. Other pieces are searched first in the stores `bases`, then in the stores that contain most of them
        according to the index of pieces.
        """
        if refs is not None:
            return await locate(wanted, [await self.view(ref) for ref in refs])
        return await self._search.places(wanted, bases)


_OPENED: Final = 256
"""Largest number of spaces in memory; each space is small, since all spaces share opened stores, threads and caches."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def is_space(name: str) -> bool:
    """Return True if `name` is a valid name of a space."""
    return _NAME.fullmatch(name) is not None


class Spaces:
    """The spaces of a catalogue; the stores of the space `default` are always open."""

    def __init__(self, default: Stores) -> None:
        self._table = SpaceTable(default.database)
        self._default = default
        self._opened: dict[str, Stores] = {DEFAULT_SPACE: default}
        self._opening: SingleFlight[str, Stores] = SingleFlight()

    def opened(self, name: str) -> Stores | None:
        """Return the stores of a space that is in memory, or None for any other space."""
        return self._opened.get(name)

    async def get(self, name: str) -> Stores:
        """Return the stores of a space; raise `NotFound` if the space does not exist."""
        return self._opened.get(name) or await self._opening.get(name, lambda: self._open(name))

    async def create(
        self,
        name: str,
        quota: Quota | None = None,
        *,
        if_match: Sequence[int | None] | None = None,
        if_none_match: bool = False,
    ) -> bool:
        """Create a space, or set its quota; return True if it is new. Other replicas notice within seconds.

        Raise `InvalidInput` for an invalid name or invalid limits. Raise `Changed` if `if_match` is neither None nor
        the space's version. If `if_none_match` is True, raise `Changed` if the space exists.
        """
        if not is_space(name):
            raise InvalidInput(
                f"Invalid space name {name!r}: use a-z, 0-9 and '-', at most 63 characters, not starting with '-'"
            )
        created = await self._table.put(name, quota, if_match=if_match, if_none_match=if_none_match)
        await self._refresh(name)
        return created

    async def usage(self, name: str) -> SpaceRow:
        """Return the usage of a space and its limits, completed by the limits of the service.

        Raise `NotFound` if the space does not exist.
        """
        return self._limited(await self._table.get(name))

    async def change_limits(
        self, name: str, limits: Mapping[str, int | None], *, if_match: Sequence[int | None] | None = None
    ) -> None:
        """Set some limits of a space, given by column name; other replicas notice within seconds.

        Raise `Changed` if `if_match` is neither None nor the space's version.
        """
        await self._table.change_limits(name, limits, if_match=if_match)
        await self._refresh(name)

    async def remove(
        self, name: str, *, with_stores: bool = False, if_match: Sequence[int | None] | None = None
    ) -> None:
        """Remove a space; other replicas notice within seconds, but the database refuses their changes at once.

        Raise `Conflict` if the space is not empty and `with_stores` is False. Raise `Changed` if `if_match` is neither
        None nor the space's version.
        """
        if name == DEFAULT_SPACE:
            raise Conflict(f"The space {name!r} cannot be removed, only its stores")
        await self._table.remove(name, with_stores=with_stores, if_match=if_match)
        self._opened.pop(name, None)

    async def _refresh(self, name: str) -> None:
        if (opened := self.opened(name)) is not None:
            await opened.quotas.refresh()

    def quotas(self) -> Iterator[tuple[str, Quotas]]:
        """Yield the name and the quota of each space in memory."""
        return ((name, stores.quotas) for name, stores in [*self._opened.items()])

    async def refresh(self) -> None:
        """Read the usage and quota of each space in memory, and forget removed spaces."""

        async def refresh(name: str) -> None:
            try:
                row = await self._table.get(name)
            except NotFound:
                self._opened.pop(name, None)
            else:
                if (opened := self._opened.get(name)) is not None:
                    opened.quotas.learn(row)

        await map_concurrently(refresh, [*self._opened])

    async def page(self, *, limit: int, cursor: str | None = None) -> ResultPage[SpaceRow]:
        """Return a page of spaces, the default space first; the cursor is the last name on the page before."""
        if cursor is not None and not is_space(cursor):
            raise InvalidInput("the cursor is not one that this service returned")
        found = list[SpaceRow]()
        if cursor is None:
            with suppress(NotFound):
                found.append(await self._table.get(DEFAULT_SPACE))
        last = "" if cursor in {None, DEFAULT_SPACE} else cursor or ""
        rows = await self._table.page(limit + 2, last)
        found += [row for row in rows if row.name != DEFAULT_SPACE]
        shown = [self._limited(row) for row in found[:limit]]
        return ResultPage(shown, shown[-1].name if len(found) > limit else None)

    async def close(self) -> None:
        """Wait until no space is being opened, and close the stores of all spaces."""
        await self._opening.idle()
        await self._default.close()

    def _limited(self, row: SpaceRow) -> SpaceRow:
        return replace(row, quota=row.quota.over(self._default.quotas.defaults))

    async def _open(self, name: str) -> Stores:
        if not is_space(name):
            raise NotFound(f"No space {name!r}")
        row = await self._table.get(name)
        stores = self._default.of_space(name)
        stores.quotas.learn(row)
        self._opened[name] = stores
        while len(self._opened) > _OPENED:
            # The oldest space is forgotten but not closed: requests may still use it, and it owns nothing to close.
            del self._opened[next(each for each in self._opened if each != DEFAULT_SPACE)]
        return stores

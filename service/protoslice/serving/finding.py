"""Look-ups of stores by id or tag, lists of stores, and look-ups of files by digest; some results are cached."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import Final, TypeAlias

from protoslice.catalog.manifest import Manifest, ObjectLocation
from protoslice.catalog.paging import PAGE_BYTES, PageBudget, ResultPage
from protoslice.catalog.spaces import Usage
from protoslice.catalog.store_lists import Key, StoreQuery
from protoslice.catalog.stores import ListedStore, StoreRow, StoreTable
from protoslice.catalog.syntax import is_tag_prefix
from protoslice.catalog.tags import StoredTag, TagTable
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import LruCache
from protoslice.database import Database
from protoslice.database.transactions import time_of
from protoslice.errors import DatabaseUnavailable, IntegrityError, InvalidInput, NotFound
from protoslice.facts import PiecePlace, Removed, Store

STALE_SECONDS: Final = 60.0
"""The number of seconds for which earlier results stay valid while the database does not answer."""
_TAG: Final = 400
"""The approximate memory of a cached tag in bytes, in addition to its name."""

ReadTags: TypeAlias = LruCache[tuple[str, str], tuple[str, float]]
"""The cached tags: space and name of each tag, with its store's id and the time of the read."""


class TagCache(TagTable):
    """The tags of one space; a read tag is cached for `trust_seconds`, counted from the start of the read.

    Changes that this process makes are visible immediately. Changes by other processes are visible after
    `trust_seconds`.
    """

    def __init__(self, database: Database, usage: Usage, read: ReadTags, *, trust_seconds: float = 0) -> None:
        super().__init__(database, usage)
        self._trust_seconds = trust_seconds
        self._read = read
        self._changes = 0

    async def store(self, name: str) -> str:
        """Return the id of the tag's store, perhaps from the cache; raise `NotFound` if the tag does not exist."""
        time = asyncio.get_running_loop().time
        known = self._read.get((self._space, name))
        if known is not None and time() - known[1] < self._trust_seconds:
            return known[0]
        begun, changes = time(), self._changes
        try:
            store_id = (await self.get(name)).store
        except DatabaseUnavailable:
            if known is None or begun - known[1] >= STALE_SECONDS:
                raise
            return known[0]
        if changes == self._changes:  # if a change overtook the read, the result may be old
            self._read.put((self._space, name), (store_id, begun), _TAG + len(name))
        return store_id

    async def version_before(self, name: str) -> str | None:
        """Return the id of the tag's store; if the tag does not exist, return the store of a related tag, or None.

        For `resnet50:4`, the related tag is the most recently set tag that begins with `resnet50:`.
        """
        with suppress(NotFound):
            return await self.store(name)
        family, colon, _ = name.rpartition(":")
        last = await self.last_set(family + colon) if colon else None
        return None if last is None else last.store

    async def put(
        self, names: Sequence[str], store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> list[tuple[StoredTag, bool]]:
        """See `TagTable.put`."""
        try:
            return await super().put(names, store, if_match=if_match, if_none_match=if_none_match)
        finally:
            self.invalidate(names)

    async def remove(self, name: str, *, if_match: str | None = None) -> None:
        """See `TagTable.remove`."""
        try:
            await super().remove(name, if_match=if_match)
        finally:
            self.invalidate([name])

    def invalidate(self, names: Iterable[str]) -> None:
        """Forget cached tags, after this process has changed them."""
        self._changes += 1
        for name in names:
            self._read.drop((self._space, name))


LEAST_FOUND: Final = 1 << 20
"""The size in bytes of the smallest file that clients can find by digest. A smaller file is quickly sent again."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
StoredPath = tuple[str, str]
"""The id of a store, and the path of a file in this store."""
CACHED_BYTES: Final = 16 << 20
"""The approximate bytes of cached manifests: about five thousand manifests with one small file each."""
_ENTRY: Final = 1000
_FILE: Final = 400
"""The approximate memory per file of a cached manifest in bytes, on top of the encoded size.

`_ENTRY` is the approximate memory per manifest.
"""
_MOST_MANIFESTS: Final = 1 << 20
TAGS_SHOWN: Final = 100
"""Largest number of tags shown with a store; `Tags.page` lists all tags in pages."""
_FOREIGN: Final = "the cursor is not one that this service returned for this list"
_LONGEST_CURSOR: Final = 8192
_BEHIND: Final = 1 << 63

_log = logging.getLogger(__name__)


class Manifests:
    """The manifests of the stores of one space."""

    def __init__(self, table: StoreTable, worker: Worker, *, cached_bytes: int = CACHED_BYTES) -> None:
        self._table = table
        self._worker = worker
        self._cache: LruCache[str, Manifest] = LruCache(most=_MOST_MANIFESTS, room=cached_bytes)

    async def get(self, store_id: str) -> Manifest:
        """Return the manifest of a store; raise `NotFound` if the store does not exist."""
        known = self._cache.get(store_id)
        row = await self._table.get(store_id, None if known is None else known.row)
        if row is None:
            self._cache.drop(store_id)
            raise NotFound(f"No store {store_id}")
        return await self.of(row)

    async def of(self, row: StoreRow) -> Manifest:
        """Return the manifest of a row; raise `IntegrityError` if the manifest is damaged."""
        known = self._cache.get(row.digest)
        if known is not None and known.row == row.id:
            return known
        data = row.manifest
        if data is None:
            again = await self._table.get(row.digest)  # the manifest has been evicted since the row was read
            if again is None or again.manifest is None:
                raise NotFound(f"No store {row.digest}")
            row, data = again, again.manifest
        manifest = await self._worker.run_if_large(len(data), lambda: Manifest.decode(data, row.id))
        if manifest.id != row.digest:
            raise IntegrityError(f"the manifest of store {row.digest} belongs to another store")
        self._cache.put(row.digest, manifest, len(data) + _ENTRY + _FILE * len(manifest.files))
        return manifest

    async def starting_with(self, prefix: str) -> str:
        """Return the only store id that begins with `prefix`.

        Raise `InvalidInput` if several ids begin with it, and `NotFound` if none does.
        """
        found = await self._table.starting_with(prefix)
        if len(found) > 1:
            raise InvalidInput(f"Several ids start with {prefix!r}: give more digits")
        if not found:
            raise NotFound(f"No store has an id that starts with {prefix!r}")
        return found[0]

    async def whole_id(self, prefix: str) -> str:
        """Return the only store id that begins with `prefix`; look at removed stores if no other store matches.

        Raise `InvalidInput` if several ids begin with `prefix`, and `NotFound` if none does.
        """
        try:
            return await self.starting_with(prefix)
        except NotFound:
            return await self.removed(prefix)

    async def removed(self, prefix: str) -> str:
        """Return the only id of a removed store that begins with `prefix`; the errors are those of `starting_with`."""
        found = await self._table.starting_with(prefix, removed=True)
        if len(found) > 1:
            raise InvalidInput(f"Several removed stores have ids that start with {prefix!r}: give more digits")
        if not found:
            raise NotFound(
                f"No removed store has an id that starts with {prefix!r}: garbage collection may have deleted its data"
            )
        return found[0]


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file in the storage that a new store may share."""

    size: int
    sha256: str
    location: ObjectLocation


def refs_of(manifest: Manifest) -> dict[str, FileRef]:
    """Return references to a store's files by path; external objects are left out."""
    return {
        file.path: FileRef(file.size, file.sha256, stored)
        for file, stored in zip(manifest.files, manifest.objects, strict=True)
        if file.sha256 is not None
    }


def found_by_digest(manifest: Manifest) -> list[tuple[int, bytes]]:
    """Return number and SHA-256 of each file of a store that can be found by its digest."""
    return [
        (number, bytes.fromhex(file.sha256))
        for number, (file, stored) in enumerate(zip(manifest.files, manifest.objects, strict=True))
        if file.sha256 is not None and file.size >= LEAST_FOUND and stored.uri is None
    ]


class FilesByDigest:
    """The files of one space's stores, found by digest."""

    def __init__(self, table: StoreTable, manifests: Manifests) -> None:
        self._table = table
        self._manifests = manifests

    async def find(self, sha256: str) -> FileRef | None:
        """Return a file with this hexadecimal SHA-256, or None; only files of 1 MiB or more are found."""
        async for manifest, number in self._found(sha256):
            return FileRef(manifest.files[number].size, sha256, manifest.objects[number])
        return None

    async def place(self, sha256: str, size: int) -> PiecePlace | None:
        """Return a store and path with this file, or None if no store has it."""
        async for manifest, number in self._found(sha256):
            file = manifest.files[number]
            if file.size == size:
                return PiecePlace(sha256, size, manifest.id, file.path, 0)
        return None

    async def _found(self, sha256: str) -> AsyncIterator[tuple[Manifest, int]]:
        if not _DIGEST.fullmatch(sha256):
            raise InvalidInput("Invalid digest: use the 64 hex digits of a SHA-256, in lower case")
        for row, number in await self._table.with_file(bytes.fromhex(sha256)):
            with suppress(IntegrityError, NotFound):  # a damaged or deleted store is skipped
                yield await self._manifests.of(row), number


class StorePages:
    """The stores of one space in the form of the API."""

    def __init__(self, table: StoreTable, manifests: Manifests) -> None:
        self._table = table
        self._manifests = manifests

    async def get(self, store_id: str) -> Store:
        """Return a store with up to `TAGS_SHOWN` tags; raise `NotFound` if the store does not exist."""
        return await self._known(await self._table.shown(digest=store_id, tags=TAGS_SHOWN), f"No store {store_id}")

    async def tagged(self, tag: str) -> Store:
        """Return the store of a tag; raise `NotFound` if the tag does not exist."""
        return await self._known(await self._table.shown(tag=tag, tags=TAGS_SHOWN), f"No tag {tag!r}")

    async def described(self, manifest: Manifest, *, keep: bool = False) -> Store:
        """Return the store of a manifest with up to `TAGS_SHOWN` tags.

        If `keep` is set, the store remains even after its commits are removed.
        """
        tags, uploader, description, of_commits = await self._table.about(manifest.id, TAGS_SHOWN)
        if keep and of_commits:
            await self._table.keep(manifest.id)
        return manifest.as_store(tags, uploader, description)

    async def describe(self, store_id: str, text: str, *, if_match: str | None = None) -> Store:
        """Set the description of a store and return the store; raise `NotFound` if the store does not exist."""
        if not await self._table.describe(store_id, text, if_match=if_match):
            raise NotFound(f"No store {store_id}")
        return await self.get(store_id)

    async def page(self, query: StoreQuery, *, limit: int, cursor: str | None) -> ResultPage[Store]:
        """Return a page of the stores that match `query`.

        A page may be short or even empty although further pages follow.
        """
        after = None if cursor is None else _key_of(cursor, query)
        listed, rest = await self._table.page(query, limit=limit + 1, after=after, room=PAGE_BYTES, tags=TAGS_SHOWN)
        fitting, found = await self._fitting(listed, limit)
        if len(fitting) < len(listed):
            rest = fitting[-1].key
        return ResultPage(found, None if rest is None else _cursor_of(rest, query))

    async def removed(self, kept: timedelta, *, limit: int, cursor: str | None) -> ResultPage[Removed]:
        """Return a page of removed stores, latest first; each can be restored for `kept` after its removal."""
        after = re.fullmatch(r"([0-9]{1,19})-([0-9]{1,19})", cursor or "0-0")
        if after is None or not all(int(each) < _BEHIND for each in after.groups()):
            raise InvalidInput(_FOREIGN)
        key = None if cursor is None else (int(after[1]), int(after[2]))
        rows = await self._table.removed(limit=limit + 1, after=key)
        room = PageBudget(limit)
        fitting = [*takewhile(lambda row: room.takes(len(row[3])), rows[:limit])]
        found = [Removed(digest, tuple(json.loads(tags)), time_of(time) + kept) for time, _, digest, tags in fitting]
        return ResultPage(found, "{}-{}".format(*fitting[-1][:2]) if len(fitting) < len(rows) else None)

    async def family(
        self, tag: str, *, type: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[Store]:
        """Return a page of the stores whose tags begin with `tag`, in the order of the tags.

        A store with several such tags appears once, at its first tag. A page may be short or even empty although
        further pages follow.
        """
        if cursor is not None and not is_tag_prefix(cursor):
            raise InvalidInput(_FOREIGN)
        if tag and not is_tag_prefix(tag):
            return ResultPage(())
        listed = await self._table.tagged(tag, limit=limit + 1, after=cursor or "", room=PAGE_BYTES, tags=TAGS_SHOWN)
        fitting, found = await self._fitting(listed, limit)
        after = str(fitting[-1].key[0]) if len(fitting) < len(listed) else None
        return ResultPage([store for store in found if type in {None, store.type or ""}], after)

    async def _fitting(
        self, listed: Sequence[ListedStore], limit: int
    ) -> tuple[Sequence[ListedStore], Sequence[Store]]:
        """Return the rows of `listed` that fit on a page, and the stores of these rows in the form of the API."""
        room = PageBudget(limit)
        fitting = [*takewhile(lambda each: room.takes(each.weight + len(each.description)), listed[:limit])]
        return fitting, [store for each in fitting if (store := await self._shown(each)) is not None]

    async def _known(self, found: ListedStore | None, missing: str) -> Store:
        if found is None:
            raise NotFound(missing)
        return (await self._manifests.of(found.row)).as_store(found.tags, found.uploader, found.description)

    async def _shown(self, listed: ListedStore) -> Store | None:
        """Return the store of a row; return None for a damaged store, which is logged, and for a deleted store."""
        try:
            return (await self._manifests.of(listed.row)).as_store(listed.tags, listed.uploader, listed.description)
        except IntegrityError:
            _log.exception("store %s is unreadable and was left out of a list", listed.row.digest)
        except NotFound:
            pass
        return None


def _cursor_of(key: Key, query: StoreQuery) -> str:
    """Return the cursor that continues after a store, in the sort order of `query`."""
    text = json.dumps([query.order, query.descending, *key], separators=(",", ":"))
    return base64.b64encode(text.encode(), b"-_").decode().rstrip("=")


def _key_of(cursor: str, query: StoreQuery) -> Key:
    """Return the key in a cursor; raise `InvalidInput` if it is malformed or belongs to another sort order."""
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        order, descending, *key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if (order, descending) != (query.order, query.descending) or [*map(type, key)] != [*query.key_types]:
            raise ValueError
        if any(isinstance(each, int) and not -_BEHIND <= each < _BEHIND for each in key):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise InvalidInput(_FOREIGN) from None
    return tuple(key)

"""Tags: mutable names of stores."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.facts import Tag
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.storage.interface import PAGE
from protoslice.stores.catalog.claims import RENEW_SECONDS
from protoslice.stores.catalog.named_records import NamedRecords
from protoslice.stores.catalog.trust import TrustedTags
from protoslice.stores.clock import now
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import Indexes
from protoslice.stores.names import check_tag, is_tag_prefix
from protoslice.stores.paging import ResultPage
from protoslice.stores.requests import TAGS_OF_A_STORE

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredTag(Tag):
    """A tag with the entity tag of its record, which changes whenever the tag is set."""

    etag: str


class Tags:
    """Tags of one storage, with an index of the tags of each store."""

    def __init__(self, storage: Storage, *, late_after: float = RENEW_SECONDS, trust_seconds: float = 0) -> None:
        self._storage = storage
        self._indexes = Indexes(storage)
        self._late_after = late_after
        self._records = NamedRecords(storage, keys.TAGS, "tag")
        self._trusted = TrustedTags(trust_seconds)

    async def each(self) -> AsyncIterator[StoredTag]:
        """All tags by name; damaged ones are logged and skipped."""
        async for record in self._records.each():
            yield _tag(*record)

    async def page(self, limit: int, cursor: str | None) -> ResultPage[StoredTag]:
        """A page of the tags, by name."""
        items, after = await self._records.page(limit, cursor)
        return ResultPage([_tag(*item) for item in items], after)

    async def get(self, name: str) -> StoredTag:
        """The tag called `name`; `NotFound` when it does not exist."""
        try:
            return _tag(*await self._records.read(keys.tag(check_tag(name))))
        except NotFound:
            raise NotFound(f"there is no tag {name!r}") from None

    async def beginning_with(self, prefix: str, *, limit: int, cursor: str | None) -> ResultPage[StoredTag]:
        """A page of the tags whose names begin with `prefix`, which may be empty, by name."""
        if cursor is not None and not is_tag_prefix(cursor):
            raise InvalidInput("this cursor was not given by this service")
        if prefix and not is_tag_prefix(prefix):
            return ResultPage(())
        after = keys.before_tags(prefix) if cursor is None else keys.tag(cursor)
        page = await self._storage.list(keys.TAGS, after=after, limit=limit)
        found = [stat for stat in page.items if keys.name_of(stat.key).startswith(prefix)]
        ended = page.after is None or (found[-1:] != [page.items[-1]] and keys.name_of(page.items[-1].key) > prefix)
        tags = [_tag(*record) for record in await self._records.listed(found)]
        return ResultPage(tags, None if ended else keys.name_of(page.items[-1].key))

    async def first_of(self, store: str, prefix: str) -> str | None:
        """The first tag of a store by name that begins with `prefix`; None when there is none."""
        after = keys.before_tags(prefix, keys.BY_STORE / store)
        async for entry in self._storage.iterate(keys.BY_STORE / store, after=after):
            name = keys.name_of(entry.key)
            if name.startswith(prefix):
                tag = await self._get_or_none(name)
                if tag is not None and tag.store == store:
                    return name
            elif name > prefix:
                break
        return None

    async def _named(self, names: Sequence[str], known: Mapping[str, StoredTag]) -> list[StoredTag]:
        """Existing tags among `names`, in order, `known` or read; damaged ones are logged and skipped."""
        read = [name for name in names if name not in known]
        found = dict(zip(read, await map_concurrently(self._get_or_none, read), strict=True))
        return [tag for name in names if (tag := known.get(name) or found[name]) is not None]

    async def _get_or_none(self, name: str) -> StoredTag | None:
        try:
            return await self.get(name)
        except NotFound:
            return None
        except IntegrityError:
            _log.exception("the tag %r is passed over", name)
            return None

    async def trusted(self, name: str) -> str:
        """The id of the store that a tag points at, or did at most `trust_seconds` ago; see `TrustedTags`."""
        return await self._trusted.store(name, self._store_of)

    async def _store_of(self, name: str) -> str:
        return (await self.get(name)).store

    async def put(self, name: str, store: str, *, if_match: str | None, if_none_match: bool) -> tuple[StoredTag, bool]:
        """Point `name` at `store`; returns the tag and True when it is new.

        `if_match` requires that entity tag of the present record, `if_none_match` that there is none; else `Conflict`.
        """
        key, time = keys.tag(check_tag(name)), now()
        async with self._indexes.tagged(store, name, self._late_after):
            with self._trusted.changing(name):
                etag, created = await self._write(key, store, time, if_match=if_match, if_none_match=if_none_match)
        return StoredTag(name, store, time, etag), created

    async def check_room(self, store: str, names: Iterable[str]) -> None:
        """Raise `LimitExceeded` when `store` would have more than `TAGS_OF_A_STORE` tags with `names`.

        Index entries are counted, including those of tags moved elsewhere until garbage collection removes them.
        """
        there = (await self._indexes.tags(store, limit=TAGS_OF_A_STORE, cursor=None)).items
        if len({*there, *names}) > TAGS_OF_A_STORE:
            raise LimitExceeded(
                f"a store has at most {TAGS_OF_A_STORE} tags, counting those moved elsewhere lately: remove some"
            )

    async def of(
        self,
        store: str,
        *,
        limit: int,
        cursor: str | None = None,
        known: Mapping[str, StoredTag] = MappingProxyType({}),
    ) -> ResultPage[StoredTag]:
        """A page of the tags that point at `store`; `InvalidInput` for a cursor that is no tag name.

        `known` are tags by name that were read just now.
        """
        if cursor is not None:
            check_tag(cursor)
        while True:
            page = await self._indexes.tags(store, limit=limit, cursor=cursor)
            found = [tag for tag in await self._named(page.items, known) if tag.store == store]
            if found or page.next is None:
                return ResultPage(found, page.next)
            cursor = page.next  # only stale entries on this page: read the next

    async def all_of(self, store: str) -> AsyncIterator[StoredTag]:
        """All tags that point at `store`."""
        cursor: str | None = None
        while True:
            page = await self.of(store, limit=PAGE, cursor=cursor)
            for tag in page.items:
                yield tag
            cursor = page.next
            if cursor is None:
                return

    async def _write(
        self, key: ObjectKey, store: str, time: datetime, *, if_match: str | None, if_none_match: bool
    ) -> tuple[str, bool]:
        """Write the record of a tag; returns its entity tag and True when the tag is new."""
        record = {"store": store, "updated": time.isoformat(), "token": secrets.token_hex(8)}
        data = json.dumps(record).encode()
        if if_none_match:
            return await self._records.create(key, data), True
        if if_match is not None:
            return await self._records.replace(key, data, if_match), False
        return await self._records.set(key, data)

    async def delete(self, name: str, *, if_match: str | None) -> None:
        """Remove a tag atomically, on condition of `if_match` unless None; the store stays."""
        try:
            with self._trusted.changing(name):
                await self._records.remove(keys.tag(check_tag(name)), if_match)
        except NotFound:
            raise NotFound(f"there is no tag {name!r}") from None


def _tag(data: bytes, stat: ObjectStat) -> StoredTag:
    raw = json.loads(data)
    return StoredTag(keys.name_of(stat.key), raw["store"], datetime.fromisoformat(raw["updated"]), stat.etag)

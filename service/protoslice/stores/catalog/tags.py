"""Tags: mutable names of stores."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from protoslice.concurrency.gather import both, map_concurrently
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.facts import Tag
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.storage.interface import PAGE
from protoslice.stores.catalog.claims import RENEW_SECONDS
from protoslice.stores.catalog.made import MadeStore, facts_of, made_store
from protoslice.stores.catalog.named_records import NamedRecords, is_removal_mark
from protoslice.stores.catalog.trust import TrustedTags
from protoslice.stores.clock import now
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import Indexes, MarkedTags
from protoslice.stores.manifest import Manifest
from protoslice.stores.names import check_tag, is_tag_prefix
from protoslice.stores.paging import ResultPage
from protoslice.stores.requests import TAGS_OF_A_STORE

_log = logging.getLogger(__name__)

_PROMPT_SECONDS: Final = RENEW_SECONDS / 2
"""Seconds until a record comes, at most, with the difference of clocks: far less than marks stay."""


@dataclass(frozen=True, slots=True)
class StoredTag(Tag):
    """A tag with the entity tag of its record, which changes whenever the tag is set."""

    etag: str
    made: MadeStore | None = field(default=None, compare=False)
    """Store as it was made, which may be gone; None unless its index entries bear the tag."""
    weight: int = field(default=0, compare=False)
    """Bytes of the record."""
    attempt: str | None = field(default=None, compare=False)
    """Attempt of the manifest whose claims were held before the tag was set; None in older records."""
    written: datetime | None = field(default=None, compare=False)
    """Time at which the record came, by the clock of the storage; None for a tag that has just been set."""

    @property
    def is_prompt(self) -> bool:
        """True when the record came when it was written, and not from a writer that stood still or a copy."""
        if self.made is None or self.written is None:
            return False
        return abs((self.written - self.made.at).total_seconds()) < _PROMPT_SECONDS

    def shows_lasting(self, manifest: Manifest) -> bool:
        """True when the tag shows that the objects of a manifest stay that was read before the tag."""
        # Claims were held since the manifest came to its place, where one without `again` has been ever since.
        return not manifest.again and self.attempt == manifest.attempt


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
            raise NotFound(f"No tag {name!r}") from None

    async def beginning_with(
        self, prefix: str, *, limit: int, cursor: str | None
    ) -> tuple[ResultPage[StoredTag], MarkedTags]:
        """A page of the tags that begin with `prefix`, which may be empty, by name; and marks by tags."""
        if cursor is not None and not is_tag_prefix(cursor):
            raise InvalidInput("this cursor was not given by this service")
        if prefix and not is_tag_prefix(prefix):
            return ResultPage(()), MarkedTags(frozenset(), None)
        after = keys.before_tags(prefix) if cursor is None else keys.tag(cursor)
        page, marked = await both(
            lambda: self._storage.list(keys.TAGS, after=after, limit=limit),
            lambda: self._indexes.marked(prefix, cursor),
        )
        found = [stat for stat in page.items if keys.name_of(stat.key).startswith(prefix)]
        ended = page.after is None or (found[-1:] != [page.items[-1]] and keys.name_of(page.items[-1].key) > prefix)
        tags = [_tag(*record) for record in await self._records.listed(found)]
        return ResultPage(tags, None if ended else keys.name_of(page.items[-1].key)), marked

    async def version_before(self, name: str) -> str | None:
        """Id of the store that a tag points at, or else that of the last of its name; None when there is none.

        The last of its name is for `resnet50:4` the tag set last among those that begin with `resnet50:`.
        """
        with suppress(NotFound):
            return await self.trusted(name)
        family, colon, _ = name.rpartition(":")
        last = await self.last_set(family + colon) if colon else None
        return None if last is None else last.store

    async def last_set(self, prefix: str) -> StoredTag | None:
        """The tag set last among the first page of those that begin with `prefix`; None when there is none."""
        page = await self._storage.list(keys.TAGS, after=keys.before_tags(prefix))
        found = [stat for stat in page.items if keys.name_of(stat.key).startswith(prefix) and not is_removal_mark(stat)]
        last = max(found, key=lambda stat: (stat.modified, stat.key), default=None)
        return None if last is None else await self.get_or_none(keys.name_of(last.key))

    async def first_of(self, store: str, borne: Iterable[str], prefix: str) -> str | None:
        """The first tag of a store by name that begins with `prefix`; None when there is none."""
        found = await self._named([name for name in borne if name.startswith(prefix)], {})
        first = min((tag.name for tag in found if tag.store == store), default=None)
        after = keys.before_tags(prefix, keys.BY_STORE / store)
        async for entry in self._storage.iterate(keys.BY_STORE / store, after=after):
            name = keys.name_of(entry.key)
            if first is not None and name > first:
                break
            if name.startswith(prefix):
                tag = await self.get_or_none(name)
                if tag is not None and tag.store == store:
                    return name
            elif name > prefix:
                break
        return first

    async def _named(self, names: Sequence[str], known: Mapping[str, StoredTag]) -> list[StoredTag]:
        """Existing tags among `names`, in order, `known` or read; damaged ones are logged and skipped."""
        read = [name for name in names if name not in known]
        found = dict(zip(read, await map_concurrently(self.get_or_none, read), strict=True))
        return [tag for name in names if (tag := known.get(name) or found[name]) is not None]

    async def get_or_none(self, name: str) -> StoredTag | None:
        """The tag called `name`; None when there is none, or a damaged one, which is logged."""
        try:
            return await self.get(name)
        except NotFound:
            return None
        except IntegrityError:
            _log.exception("tag %r is unreadable and was skipped", name)
            return None

    async def trusted(self, name: str) -> str:
        """The id of the store that a tag points at, or did at most `trust_seconds` ago; see `TrustedTags`."""
        return await self._trusted.store(name, self._store_of)

    async def _store_of(self, name: str) -> str:
        return (await self.get(name)).store

    async def put(
        self, name: str, store: Manifest, *, if_match: str | None, if_none_match: bool
    ) -> tuple[StoredTag, bool]:
        """Point `name` at the store of a manifest whose claims were held; the tag, and True when it is new.

        `if_match` requires that entity tag of the present record, `if_none_match` that there is none; else `Conflict`.
        """
        key, time = keys.tag(check_tag(name)), now()
        async with self._indexes.tagged(store, name, self._late_after):
            with self._trusted.changing(name):
                etag, created = await self._write(
                    key, store, time, {"attempt": store.attempt}, if_match=if_match, if_none_match=if_none_match
                )
        return StoredTag(name, store.id, time, etag), created

    async def check_room(self, store: Manifest, names: Collection[str]) -> None:
        """Raise `LimitExceeded` when `store` would have more than `TAGS_OF_A_STORE` tags with `names`.

        Index entries are counted, including those of tags moved elsewhere until garbage collection removes them.
        """
        if set(names) <= {*(store.tags or ())}:
            return
        there = (await self._indexes.tags(store.id, limit=TAGS_OF_A_STORE, cursor=None)).items
        if len({*there, *(store.tags or ()), *names}) > TAGS_OF_A_STORE:
            raise LimitExceeded(
                f"Too many tags on this store: at most {TAGS_OF_A_STORE}, including recently moved ones; remove some"
            )

    async def later(self, store: str, limit: int) -> ResultPage[str]:
        """The first names of tags that were set after their store was sent, for `of`."""
        return await self._indexes.tags(store, limit=limit, cursor=None)

    async def of(
        self,
        store: str,
        borne: Collection[str],
        *,
        limit: int,
        cursor: str | None = None,
        known: Mapping[str, StoredTag] = MappingProxyType({}),
        later: ResultPage[str] | None = None,
    ) -> ResultPage[StoredTag]:
        """A page of the tags that point at `store`, by name; `InvalidInput` for a cursor that is no tag name.

        `borne` are the tags that its index entries bear, `known` tags by name that were read just now, and `later` the
        answer of `later` with this limit.
        """
        if cursor is not None:
            check_tag(cursor)
        while True:
            page = later or await self._indexes.tags(store, limit=limit, cursor=cursor)
            here = (name for name in borne if (cursor or "") < name and (page.next is None or name <= page.next))
            names = sorted({*page.items, *here})
            after = names[limit - 1] if len(names) > limit else page.next
            found = [tag for tag in await self._named(names[:limit], known) if tag.store == store]
            if found or after is None:
                return ResultPage(found, after)
            cursor, later = after, None  # only stale entries on this page: read the next

    async def all_of(self, store: str, borne: Collection[str]) -> AsyncIterator[StoredTag]:
        """All tags that point at `store`."""
        cursor: str | None = None
        while True:
            page = await self.of(store, borne, limit=PAGE, cursor=cursor)
            for tag in page.items:
                yield tag
            cursor = page.next
            if cursor is None:
                return

    async def _write(
        self,
        key: ObjectKey,
        store: Manifest,
        time: datetime,
        held: Mapping[str, str],
        *,
        if_match: str | None,
        if_none_match: bool,
    ) -> tuple[str, bool]:
        """Write the record of a tag; returns its entity tag and True when the tag is new."""
        record = {"store": store.id, "updated": time.isoformat(), "token": secrets.token_hex(8), **held}
        # Of other tags a list could not see that their store has been removed.
        facts = facts_of(store, now()) if keys.name_of(key) in (store.tags or ()) else None
        data = json.dumps(record if facts is None else record | {"made": facts}).encode()
        if if_none_match:
            return await self._records.create(key, data), True
        if if_match is not None:
            return await self._records.replace(key, data, if_match), False
        return await self._records.set(key, data)

    async def renew(self, tag: StoredTag, store: Manifest) -> None:
        """Write a tag of a store again, as it is written today; nobody has held the claims of that store."""
        key = keys.tag(tag.name)
        await self._write(key, store, tag.updated, {}, if_match=tag.etag, if_none_match=False)

    async def delete(self, name: str, *, if_match: str | None) -> None:
        """Remove a tag atomically, on condition of `if_match` unless None; the store stays."""
        try:
            with self._trusted.changing(name):
                await self._records.remove(keys.tag(check_tag(name)), if_match)
        except NotFound:
            raise NotFound(f"No tag {name!r}") from None


def _tag(data: bytes, stat: ObjectStat) -> StoredTag:
    raw = json.loads(data)
    made = None
    with suppress(KeyError, TypeError, ValueError):  # without facts, or with those of a later program
        made = made_store(raw["store"], raw["made"])
    name, updated = keys.name_of(stat.key), datetime.fromisoformat(raw["updated"])
    return StoredTag(name, raw["store"], updated, stat.etag, made, len(data), raw.get("attempt"), stat.modified)

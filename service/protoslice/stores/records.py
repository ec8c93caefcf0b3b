"""Named records that may change: tags and schemas, with compare-and-set."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime

from protoslice import schema
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, StorageUnavailable
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores import keys
from protoslice.stores.manifests import TRIES
from protoslice.stores.model import Page, SchemaInfo, Tag, now
from protoslice.stores.paths import check_schema_name, check_tag
from protoslice.stores.runner import Worker
from protoslice.stores.seal import seal, unseal

__all__ = ["Schemas", "Tags"]


_log = logging.getLogger(__name__)

Record = tuple[bytes, ObjectStat]


class _Records:
    """Records in one folder, cached by entity tag: a list costs one listing and a read of what has changed."""

    def __init__(self, storage: Storage, folder: ObjectKey, what: str) -> None:
        self.storage = storage
        self.folder = folder
        self.what = what
        self._cache: dict[ObjectKey, tuple[str, bytes]] = {}

    async def read(self, key: ObjectKey) -> Record:
        """The record, as it is at one moment; `NotFound` when there is none."""
        return await self._current(await self.storage.stat(key))

    async def page(self, limit: int, cursor: str | None) -> tuple[list[Record], str | None]:
        """Some records by name, and where the next ones begin. `IntegrityError` when one of them is damaged."""
        page = await self.storage.list(self.folder, after=_after(self.folder, cursor), limit=limit)
        found = []
        for item in page.items:
            with suppress(NotFound):  # gone since it was listed
                found.append(await self._current(item))
        return found, page.after.segments[-1] if page.after else None

    async def each(self) -> AsyncIterator[Record]:
        """All records but damaged ones: those are logged, and harm no other."""
        after: ObjectKey | None = None
        while True:
            page = await self.storage.list(self.folder, after=after)
            for item in page.items:
                try:
                    yield await self._current(item)
                except NotFound:
                    continue
                except IntegrityError:
                    _log.exception("the %s %r is passed over", self.what, keys.name_of(item.key))
            after = page.after
            if after is None:
                return

    async def _current(self, stat: ObjectStat) -> Record:
        """The record that was at `stat`, or what it has been changed to since."""
        for _ in range(TRIES):
            cached = self._cache.get(stat.key)
            if cached is not None and cached[0] == stat.etag:
                return cached[1], stat
            try:
                sealed = await self.storage.get_range(stat.key, 0, stat.size, if_etag=stat.etag)
            except Conflict:
                stat = await self.storage.stat(stat.key)
                continue
            data = unseal(sealed, f"the {self.what} {keys.name_of(stat.key)!r}")
            self._cache[stat.key] = (stat.etag, data)
            return data, stat
        raise StorageUnavailable(f"the {self.what} {keys.name_of(stat.key)!r} keeps changing")

    async def write(
        self, key: ObjectKey, data: bytes, *, if_match: str | None, if_none_match: bool
    ) -> tuple[str, bool]:
        """Set a record; its entity tag, and whether it is new."""
        sealed = seal(data)
        if if_none_match:
            return await self.storage.put_if_absent(key, sealed), True
        if if_match is not None:
            return await self.storage.put(key, sealed, if_etag=if_match), False
        try:
            return await self.storage.put_if_absent(key, sealed), True
        except Conflict:
            return await self.storage.put(key, sealed), False

    async def remove(self, key: ObjectKey, if_match: str | None) -> None:
        stat = await self.storage.stat(key)
        if if_match is not None and stat.etag != if_match:
            raise Conflict("it has been changed meanwhile")
        self._cache.pop(key, None)
        await self.storage.delete(key)


def _after(folder: ObjectKey, cursor: str | None) -> ObjectKey | None:
    if cursor is None:
        return None
    if "/" in cursor:
        raise InvalidInput("this cursor was not given by this service")
    return folder / cursor


class Tags:
    """Names that point at stores."""

    def __init__(self, storage: Storage) -> None:
        self._records = _Records(storage, keys.TAGS, "tag")

    async def page(self, limit: int, cursor: str | None) -> Page[Tag]:
        """A page of the tags, by name."""
        items, after = await self._records.page(limit, cursor)
        return Page([_tag(*item) for item in items], after)

    async def all(self) -> list[Tag]:
        """Every tag that is not damaged."""
        return [_tag(*record) async for record in self._records.each()]

    async def get(self, name: str) -> Tag:
        """The tag called `name`."""
        try:
            return _tag(*await self._records.read(keys.tag(check_tag(name))))
        except NotFound:
            raise NotFound(f"there is no tag {name!r}") from None

    async def put(self, name: str, store: str, *, if_match: str | None, if_none_match: bool) -> tuple[Tag, bool]:
        """Point `name` at `store`; whether the tag is new."""
        key, time = keys.tag(check_tag(name)), now()
        data = json.dumps({"store": store, "updated": time.isoformat()}).encode()
        try:
            etag, created = await self._records.write(key, data, if_match=if_match, if_none_match=if_none_match)
        except Conflict:
            what = "exists already" if if_none_match else "has been changed meanwhile, or is gone"
            raise Conflict(f"the tag {name!r} {what}") from None
        return Tag(name, store, time, etag), created

    async def delete(self, name: str, *, if_match: str | None) -> None:
        """Remove the tag; what it points at stays."""
        try:
            await self._records.remove(keys.tag(check_tag(name)), if_match)
        except NotFound:
            raise NotFound(f"there is no tag {name!r}") from None


def _tag(data: bytes, stat: ObjectStat) -> Tag:
    raw = json.loads(data)
    return Tag(keys.name_of(stat.key), raw["store"], datetime.fromisoformat(raw["updated"]), stat.etag)


class Schemas:
    """Uploaded descriptor sets, parsed off the loop and one at a time: a large one takes seconds, and memory."""

    def __init__(self, storage: Storage, worker: Worker) -> None:
        self._records = _Records(storage, keys.SCHEMAS, "schema")
        self._worker = worker
        self._parsing = asyncio.Lock()
        self._sizes: dict[str, tuple[str, int]] = {}
        """By name, the entity tag of a schema and how many message types it declares."""

    async def page(self, limit: int, cursor: str | None) -> Page[SchemaInfo]:
        """A page of the schemas, by name."""
        items, after = await self._records.page(limit, cursor)
        return Page([await self._info(*item) for item in items], after)

    async def get(self, name: str) -> tuple[SchemaInfo, bytes]:
        """The schema called `name`, and its descriptor set."""
        try:
            data, stat = await self._records.read(keys.schema(check_schema_name(name)))
        except NotFound:
            raise NotFound(f"there is no schema {name!r}") from None
        return await self._info(data, stat), data

    async def put(self, name: str, data: bytes) -> tuple[SchemaInfo, bool]:
        """Keep a descriptor set under `name`; whether it is new."""
        check_schema_name(name)
        await self._parsed(data)
        _, created = await self._records.write(keys.schema(name), data, if_match=None, if_none_match=False)
        return (await self.get(name))[0], created

    async def delete(self, name: str) -> None:
        """Remove a schema; stores that were made with it keep it."""
        try:
            await self._records.remove(keys.schema(check_schema_name(name)), None)
            self._sizes.pop(name, None)
        except NotFound:
            raise NotFound(f"there is no schema {name!r}") from None

    async def find(self, type_name: str) -> tuple[schema.MessageTypes, bytes] | None:
        """The first schema that declares a message type, and its descriptor set."""
        async for data, _ in self._records.each():
            types = await self._parsed(data)
            if type_name in types:
                return types, data
        return None

    async def _info(self, data: bytes, stat: ObjectStat) -> SchemaInfo:
        name = keys.name_of(stat.key)
        etag, size = self._sizes.get(name, ("", 0))
        if etag != stat.etag:
            size = len(await self._parsed(data))
            self._sizes[name] = (stat.etag, size)
        return SchemaInfo(name, len(data), size, stat.modified, stat.etag)

    async def _parsed(self, data: bytes) -> schema.MessageTypes:
        async with self._parsing:
            return await self._worker.run(lambda: schema.from_descriptor_set(data))

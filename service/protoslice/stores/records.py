"""Named records that may change: tags and schemas, with compare-and-set."""

from __future__ import annotations

import json
from datetime import datetime

from protoslice import schema
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores import keys
from protoslice.stores.model import Page, SchemaInfo, Tag, now
from protoslice.stores.paths import check_schema_name, check_tag
from protoslice.stores.seal import seal, unseal

__all__ = ["Schemas", "Tags"]


class _Records:
    """Records in one folder, cached by entity tag: a list costs one listing and a read of what has changed."""

    def __init__(self, storage: Storage, folder: ObjectKey) -> None:
        self.storage = storage
        self.folder = folder
        self._cache: dict[ObjectKey, tuple[str, bytes]] = {}

    async def read(self, key: ObjectKey, what: str) -> tuple[bytes, ObjectStat]:
        stat = await self.storage.stat(key)
        return await self.content(stat, what), stat

    async def content(self, stat: ObjectStat, what: str) -> bytes:
        cached = self._cache.get(stat.key)
        if cached is not None and cached[0] == stat.etag:
            return cached[1]
        data = unseal(await self.storage.get_range(stat.key, 0, stat.size, if_etag=stat.etag), what)
        self._cache[stat.key] = (stat.etag, data)
        return data

    async def page(self, limit: int, cursor: str | None) -> tuple[list[ObjectStat], str | None]:
        page = await self.storage.list(self.folder, after=_after(self.folder, cursor), limit=limit)
        return list(page.items), page.after.segments[-1] if page.after else None

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
        self._records = _Records(storage, keys.TAGS)

    async def page(self, limit: int, cursor: str | None) -> Page[Tag]:
        """A page of the tags, by name."""
        items, after = await self._records.page(limit, cursor)
        return Page([_tag(await self._records.content(item, "a tag"), item) for item in items], after)

    async def all(self) -> list[Tag]:
        """Every tag."""
        found: list[Tag] = []
        cursor: str | None = None
        while True:
            page = await self.page(1000, cursor)
            found.extend(page.items)
            cursor = page.next
            if cursor is None:
                return found

    async def get(self, name: str) -> Tag:
        """The tag called `name`."""
        try:
            return _tag(*await self._records.read(keys.tag(check_tag(name)), "a tag"))
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
    """Uploaded descriptor sets."""

    def __init__(self, storage: Storage) -> None:
        self._records = _Records(storage, keys.SCHEMAS)

    async def page(self, limit: int, cursor: str | None) -> Page[SchemaInfo]:
        """A page of the schemas, by name."""
        items, after = await self._records.page(limit, cursor)
        return Page([self._info(await self._records.content(item, "a schema"), item) for item in items], after)

    async def get(self, name: str) -> tuple[SchemaInfo, bytes]:
        """The schema called `name`, and its descriptor set."""
        try:
            data, stat = await self._records.read(keys.schema(check_schema_name(name)), "a schema")
        except NotFound:
            raise NotFound(f"there is no schema {name!r}") from None
        return self._info(data, stat), data

    async def put(self, name: str, data: bytes) -> tuple[SchemaInfo, bool]:
        """Keep a descriptor set under `name`; whether it is new."""
        check_schema_name(name)
        schema.from_descriptor_set(data)
        _, created = await self._records.write(keys.schema(name), data, if_match=None, if_none_match=False)
        return (await self.get(name))[0], created

    async def delete(self, name: str) -> None:
        """Remove a schema; stores that were made with it keep it."""
        try:
            await self._records.remove(keys.schema(check_schema_name(name)), None)
        except NotFound:
            raise NotFound(f"there is no schema {name!r}") from None

    async def find(self, type_name: str) -> tuple[schema.MessageTypes, bytes] | None:
        """The first schema that declares a message type, and its descriptor set."""
        cursor: str | None = None
        while True:
            items, cursor = await self._records.page(1000, cursor)
            for item in items:
                data = await self._records.content(item, "a schema")
                types = schema.from_descriptor_set(data)
                if type_name in types:
                    return types, data
            if cursor is None:
                return None

    def _info(self, data: bytes, stat: ObjectStat) -> SchemaInfo:
        types = schema.from_descriptor_set(data)
        return SchemaInfo(keys.name_of(stat.key), len(data), len(types), stat.modified, stat.etag)

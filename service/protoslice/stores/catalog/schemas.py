"""Catalog of uploaded descriptor sets: stored by name, checked against each other, searched by type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice import _core, schema
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import CachedFlight, SingleFlight
from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound, StorageUnavailable
from protoslice.facts import Schema
from protoslice.schema import MessageTypes, TypeSchema
from protoslice.storage import ObjectStat, Storage
from protoslice.stores.catalog.named_records import TRIES, NamedRecords, is_removal_mark
from protoslice.stores.layout import keys
from protoslice.stores.manifest import Manifest
from protoslice.stores.names import check_schema_name
from protoslice.stores.paging import ResultPage

_log = logging.getLogger(__name__)

MAX_TYPES: Final = 1_000_000
"""Most message types and enums declared by all schemas of a storage; each takes 32 bytes of memory."""
MAX_BYTES: Final = 256 << 20
"""Most bytes of all schemas of a storage together; each process reads every schema once."""

_PARSED: Final = 64 << 20
_READ_BY: Final = 64 << 20
_CACHED_SCHEMAS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class _Known:
    """Facts of a schema, valid as long as its entity tag is unchanged."""

    etag: str
    size: int
    messages: int
    declares: _core.Declarations


@dataclass(frozen=True, slots=True)
class StoredSchema(Schema):
    """A schema with the entity tag of its record, which changes whenever the schema is put."""

    etag: str


class _Changed(Exception):
    """A schema was replaced or removed since the listing."""


class Schemas:
    """Schemas of one storage. Descriptor sets are parsed in a worker thread, one at a time, each once."""

    def __init__(self, storage: Storage, worker: Worker) -> None:
        self._storage = storage
        self._worker = worker
        self._records = NamedRecords(storage, keys.SCHEMAS, "schema")
        self._parsing = asyncio.Lock()
        self._known: dict[str, _Known] = {}
        self._knowing: SingleFlight[tuple[str, str], _Known] = SingleFlight()
        self._parsed: CachedFlight[str, MessageTypes] = CachedFlight(most=_CACHED_SCHEMAS, room=_PARSED)
        """Keyed by entity tag."""
        self._read_by: CachedFlight[tuple[str, str], TypeSchema] = CachedFlight(most=_CACHED_SCHEMAS, room=_READ_BY)
        """Keyed by (entity tag, type) for uploaded sets, by (fingerprint, type) for sets stored with stores."""

    async def page(self, limit: int, cursor: str | None) -> ResultPage[StoredSchema]:
        """A page of the schemas, by name."""
        items, after = await self._records.page(limit, cursor)
        return ResultPage([await self._info(*item) for item in items], after)

    async def get(self, name: str) -> tuple[StoredSchema, bytes]:
        """The schema called `name` and its descriptor set; `NotFound` when it does not exist."""
        try:
            data, stat = await self._records.read(keys.schema(check_schema_name(name)))
        except NotFound:
            raise NotFound(f"No schema {name!r}") from None
        return await self._info(data, stat), data

    async def put(self, name: str, data: bytes) -> tuple[StoredSchema, bool]:
        """Store a descriptor set and return the schema, and True when it is new.

        Raises `Conflict` when a bundled or other uploaded set declares a type differently, and `LimitExceeded` when all
        schemas together would be too large.
        """
        check_schema_name(name)
        types = await self._parse(data)
        await self._check(name, types, len(data))
        _, created = await self._records.set(keys.schema(name), data)
        return (await self.get(name))[0], created

    async def delete(self, name: str) -> None:
        """Remove a schema; `NotFound` when it does not exist. Stores made with it keep their own copy."""
        try:
            await self._records.remove(keys.schema(check_schema_name(name)), None)
        except NotFound:
            raise NotFound(f"No schema {name!r}") from None

    async def find(self, type_name: str) -> TypeSchema | None:
        """Schema of a message type from the uploaded sets; None when no set declares the type.

        Raises `Conflict` when two sets declare the type differently. Only sets that declare the type are parsed.
        """
        for _ in range(TRIES):
            with suppress(_Changed):
                return await self._find(type_name)
        raise StorageUnavailable(f"the schemas that declare {type_name} are being changed by other requests: try again")

    async def _find(self, type_name: str) -> TypeSchema | None:
        found: dict[str, tuple[str, TypeSchema]] = {}
        for name, known in (await self._all()).items():
            if type_name in known.declares:
                read_by = await self._of(name, known.etag, type_name)
                if read_by is not None:
                    found.setdefault(read_by.fingerprint, (name, read_by))
        # Two replicas may have accepted conflicting sets at the same time.
        if len(found) > 1:
            one, other = sorted(name for name, _ in found.values())[:2]
            raise _differently(type_name, f"the schema {one!r}", f"the schema {other!r}", "remove one of them")
        return next((read_by for _, read_by in found.values()), None)

    async def of_store(self, manifest: Manifest, kept: bytes) -> TypeSchema | None:
        """Schema that a store's root is read by, always the one of its ingest; None for a root without one.

        `kept` is the descriptor set stored with the store. Raises `IntegrityError` when its fingerprint differs.
        """
        name, fingerprint = manifest.type, manifest.schema
        if name is None or fingerprint is None:
            return None
        bundled = await self._worker.run(lambda: _bundled(name))
        if bundled is not None and bundled.fingerprint == fingerprint:
            return bundled

        async def make() -> tuple[TypeSchema, int]:
            types = await self._parse(kept)
            read_by = await self._worker.run(lambda: types.schema(name))
            if read_by.fingerprint != fingerprint:
                raise IntegrityError(f"the schema of store {manifest.id} belongs to another store")
            return read_by, read_by.weight

        return await self._read_by.get((fingerprint, name), make)

    async def _of(self, name: str, etag: str, type_name: str) -> TypeSchema | None:
        """Schema of `type_name` from the set called `name`; None when the name is an enum's."""

        async def parsed() -> tuple[MessageTypes, int]:
            try:
                data, stat = await self._records.read(keys.schema(name))
            except NotFound as error:
                raise _Changed from error
            if stat.etag != etag:
                raise _Changed
            types = await self._parse(data)
            return types, types.weight

        async def made() -> tuple[TypeSchema, int]:
            read_by = await self._worker.run(lambda: types.schema(type_name))
            return read_by, read_by.weight

        types = await self._parsed.get(etag, parsed)
        return await self._read_by.get((etag, type_name), made) if type_name in types else None

    async def _check(self, name: str, types: MessageTypes, size: int) -> None:
        """Raise `Conflict` when another set declares a type differently, `LimitExceeded` beyond a total."""
        ours = await self._worker.run(types.declarations)
        others = {other: known for other, known in (await self._all()).items() if other != name}
        sets = [("what is bundled", await self._worker.run(_bundled_declarations))]
        sets += [(f"the schema {other!r}", known.declares) for other, known in sorted(others.items())]
        for who, declares in sets:
            differing = await self._worker.run(lambda declares=declares: types.differing(declares))  # type: ignore[misc]
            if differing is not None:
                raise _differently(differing, f"the schema {name!r}", who, "give it another name")
        if sum((len(known.declares) for known in others.values()), len(ours)) > MAX_TYPES:
            raise LimitExceeded(f"All schemas together declare more than {MAX_TYPES} types: remove some schemas")
        if sum((known.size for known in others.values()), size) > MAX_BYTES:
            raise LimitExceeded(f"All schemas together have more than {MAX_BYTES} bytes: remove some schemas")

    async def _all(self) -> Mapping[str, _Known]:
        """Facts of every readable schema by name; unreadable ones are logged and skipped."""
        found: dict[str, _Known] = {}
        async for stat in self._storage.iterate(keys.SCHEMAS):
            if is_removal_mark(stat):
                continue
            name = keys.name_of(stat.key)
            try:
                found[name] = await self._know(name, stat)
            except NotFound:
                continue
            except (IntegrityError, InvalidInput, LimitExceeded):
                _log.exception("schema %r is unreadable and was skipped", name)
        self._known = found
        return found

    async def _know(self, name: str, stat: ObjectStat, data: bytes | None = None) -> _Known:
        known = self._known.get(name)
        if known is not None and known.etag == stat.etag:
            return known

        async def make() -> _Known:
            record = (data, stat) if data is not None else await self._records.read(stat.key)
            types = await self._parse(record[0])
            messages, declares = await self._worker.run(lambda: (len(types), types.declarations()))
            made = self._known[name] = _Known(record[1].etag, len(record[0]), messages, declares)
            return made

        return await self._knowing.get((name, stat.etag), make)

    async def _info(self, data: bytes, stat: ObjectStat) -> StoredSchema:
        name, messages = keys.name_of(stat.key), 0
        with suppress(InvalidInput, LimitExceeded):  # accepted by a version with other limits
            messages = (await self._know(name, stat, data)).messages
        return StoredSchema(name, len(data), messages, stat.modified, stat.etag)

    async def _parse(self, data: bytes) -> MessageTypes:
        async with self._parsing:
            return await self._worker.run(lambda: schema.from_descriptor_set(data))


def _bundled(name: str) -> TypeSchema | None:
    types = schema.bundled()
    return types.kept(name) if name in types else None


def _bundled_declarations() -> _core.Declarations:
    return schema.bundled().declarations()


def _differently(type_name: str, one: str, other: str, remedy: str) -> Conflict:
    return Conflict(f"{type_name} is declared differently by {one} and {other}: {remedy}")

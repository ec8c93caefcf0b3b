"""Uploaded descriptor sets: each is stored by name, checked against the others, and searched for types."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice import _core, schema
from protoslice.catalog.manifest import Manifest
from protoslice.catalog.paging import ResultPage
from protoslice.catalog.schemas import SchemaRow, SchemaTable
from protoslice.catalog.syntax import check_schema_name
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results, SingleFlight
from protoslice.database import Database
from protoslice.database.transactions import ConcurrentChange
from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound, StorageUnavailable
from protoslice.facts import UNKNOWN, Schema
from protoslice.schema import MessageTypes, TypeSchema

_log = logging.getLogger(__name__)

MAX_TYPES: Final = 1_000_000
"""Largest number of message types and enums that all schemas of a space may declare together.

Each takes 32 bytes of memory.
"""
MAX_BYTES: Final = 256 << 20
"""Largest number of bytes of all schemas of a space together; each process reads every schema once."""

_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class _Known:
    """The facts about one version of a schema."""

    version: str
    size: int
    messages: int
    declares: _core.Declarations


@dataclass(frozen=True, slots=True)
class StoredSchema(Schema):
    """A schema with an entity tag, which changes every time the schema is stored."""

    etag: str


@dataclass(frozen=True, slots=True)
class Types:
    """The types that an ingest can use: the bundled types, and `own`, an uploaded type or None."""

    own: TypeSchema | None = None

    def of(self, name: str) -> TypeSchema:
        """Return the schema of the type `name`; raise `Unsupported` when the type is unknown."""
        return self.own if self.own is not None and self.own.name == name else schema.bundled().kept(name)

    def flat(self, name: str) -> _core.Schema:
        """Return the schema of the type `name` in the form that the core needs."""
        return self.of(name).flat


class _Changed(Exception):
    """The exception for a schema that was replaced or removed after it was listed."""


class Schemas:
    """The schemas of one space. A worker thread parses descriptor sets, each once and one at a time."""

    def __init__(self, database: Database, space: str, results: Results, worker: Worker) -> None:
        self._worker = worker
        self._table = SchemaTable(database, space)
        self._parsing = asyncio.Lock()
        self._known: dict[str, _Known] = {}
        self._knowing: SingleFlight[tuple[str, str], _Known] = SingleFlight()
        self._results = results

    async def page(self, limit: int = 100, cursor: str | None = None) -> ResultPage[StoredSchema]:
        """Return a page of the schemas, sorted by name."""
        rows = await self._table.page("" if cursor is None else check_schema_name(cursor), limit + 1)
        infos = [await self._info(row) for row in rows[:limit]]
        return ResultPage(infos, infos[-1].name if len(rows) > limit else None)

    async def get(self, name: str) -> tuple[StoredSchema, bytes]:
        """Return the schema called `name` and its descriptor set; raise `NotFound` when the schema does not exist."""
        row, data = await self._table.get(check_schema_name(name))
        return await self._info(row, data), data

    async def put(
        self, name: str, data: bytes, *, if_match: str | None = None, if_none_match: bool = False
    ) -> tuple[StoredSchema, bool]:
        """Store a descriptor set; return the schema, and True if the schema is new.

        Raise `Conflict` when a bundled set or another uploaded set declares a type differently. Raise `LimitExceeded`
        when all schemas together would be too large. Raise `Changed` when `if_match` differs from the schema's entity
        tag, or when `if_none_match` is True and the schema exists.
        """
        check_schema_name(name)
        types = await self._parse(data)
        for _ in range(_TRIES):
            others = {row.name: row.version for row in await self._table.all() if row.name != name}
            await self._check(name, types, len(data))
            with suppress(ConcurrentChange):
                row, created = await self._table.put(name, data, others, if_match=if_match, if_none_match=if_none_match)
                return await self._info(row, data), created
        raise StorageUnavailable("Other requests keep changing the schemas of this space: try again later")

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Remove a schema; raise `NotFound` when it does not exist. Stores that use it keep their own copy."""
        await self._table.remove(check_schema_name(name), if_match=if_match)

    async def find(self, type_name: str) -> TypeSchema | None:
        """Return the schema of a message type from the uploaded sets, or None when no set declares the type.

        Raise `Conflict` when two sets declare the type differently. Only sets that declare the type are parsed.
        """
        for _ in range(_TRIES):
            with suppress(_Changed):
                return await self._find(type_name)
        raise StorageUnavailable(f"other requests keep changing the schemas that declare {type_name}: try again")

    async def types(self, type_name: str | None) -> Types:
        """Return the types for an ingest whose root may have the type `type_name`.

        Raise `Unsupported` for a type that is neither bundled nor uploaded.
        """
        if type_name is None or type_name == UNKNOWN or type_name in schema.bundled():
            return Types()
        own = await self.find(type_name)
        # When no uploaded set declares the type, `schema` raises an error that suggests similar names.
        return Types(own or await self._worker.run(lambda: schema.bundled().schema(type_name)))

    async def own_type(self, name: str) -> TypeSchema | None:
        """Return the schema of an uploaded type, or None for a bundled type; raise `Unsupported` if it is unknown."""
        return (await self.types(name)).own

    async def _find(self, type_name: str) -> TypeSchema | None:
        found: dict[str, tuple[str, TypeSchema]] = {}
        for name, known in (await self._all()).items():
            if type_name in known.declares:
                read_by = await self._of(name, known.version, type_name)
                if read_by is not None:
                    found.setdefault(read_by.fingerprint, (name, read_by))
        # Two sets may declare a type identically but differ in its extensions.
        if len(found) > 1:
            one, other = sorted(name for name, _ in found.values())[:2]
            raise _differently(type_name, f"the schema {one!r}", f"the schema {other!r}", "remove one of them")
        return next((read_by for _, read_by in found.values()), None)

    async def of_store(self, manifest: Manifest, kept: bytes) -> TypeSchema | None:
        """Return the schema that reads a store's root, or None for a root without a schema.

        This is always the schema with which the store was ingested.

        `kept` is the descriptor set that is stored with the store. Raise `IntegrityError` when its fingerprint differs
        from the manifest's.
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

        return await self._results.get(("schemas", "type of a store", fingerprint, name), make)

    async def _of(self, name: str, version: str, type_name: str) -> TypeSchema | None:
        """Return the schema of `type_name` from the set called `name`; return None when `type_name` is an enum."""

        async def parsed() -> tuple[MessageTypes, int]:
            try:
                row, data = await self._table.get(name)
            except NotFound as error:
                raise _Changed from error
            if row.version != version:
                raise _Changed
            types = await self._parse(data)
            return types, types.weight

        async def made() -> tuple[TypeSchema, int]:
            read_by = await self._worker.run(lambda: types.schema(type_name))
            return read_by, read_by.weight

        types = await self._results.get(("schemas", "set", version), parsed)
        if type_name not in types:
            return None
        return await self._results.get(("schemas", "type", version, type_name), made)

    async def _check(self, name: str, types: MessageTypes, size: int) -> None:
        """Raise `Conflict` when another set declares a type differently, and `LimitExceeded` beyond a total limit."""
        ours = await self._worker.run(types.declarations)
        others = {other: known for other, known in (await self._all()).items() if other != name}
        sets = [("what is bundled", await self._worker.run(_bundled_declarations))]
        sets += [(f"the schema {other!r}", known.declares) for other, known in sorted(others.items())]
        for who, declares in sets:
            differing = await self._worker.run(lambda declares=declares: types.differing(declares))  # type: ignore[misc]
            if differing is not None:
                raise _differently(differing, f"the schema {name!r}", who, "give the type another name")
        if sum((len(known.declares) for known in others.values()), len(ours)) > MAX_TYPES:
            raise LimitExceeded(f"All schemas together declare more than {MAX_TYPES} types: remove some schemas")
        if sum((known.size for known in others.values()), size) > MAX_BYTES:
            raise LimitExceeded(f"All schemas together have more than {MAX_BYTES} bytes: remove some schemas")

    async def _all(self) -> Mapping[str, _Known]:
        """Return the facts of every readable schema by name; log and skip unreadable schemas."""
        found: dict[str, _Known] = {}
        for row in await self._table.all():
            try:
                found[row.name] = await self._know(row)
            except NotFound:
                continue
            except (InvalidInput, LimitExceeded):
                _log.exception("schema %r is unreadable and was skipped", row.name)
        self._known = found
        return found

    async def _know(self, row: SchemaRow, data: bytes | None = None) -> _Known:
        known = self._known.get(row.name)
        if known is not None and known.version == row.version:
            return known

        async def make() -> _Known:
            found, content = (row, data) if data is not None else await self._table.get(row.name)
            types = await self._parse(content)
            messages, declares = await self._worker.run(lambda: (len(types), types.declarations()))
            made = self._known[row.name] = _Known(found.version, found.size, messages, declares)
            return made

        return await self._knowing.get((row.name, row.version), make)

    async def _info(self, row: SchemaRow, data: bytes | None = None) -> StoredSchema:
        messages = 0
        with suppress(InvalidInput, LimitExceeded):  # a version with other limits may have accepted the schema
            messages = (await self._know(row, data)).messages
        return StoredSchema(row.name, row.size, messages, row.modified, row.version)

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

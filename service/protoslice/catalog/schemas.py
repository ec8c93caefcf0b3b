"""The descriptor sets that clients uploaded, by space and name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from protoslice.catalog.audit import record
from protoslice.database.transactions import ConcurrentChange, Database, Row, Transaction, check_unchanged, time_of
from protoslice.errors import NotFound

_COLUMNS = "name, version, modified, size"


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A descriptor set without its bytes; `version` changes whenever the bytes change."""

    name: str
    version: str
    modified: datetime
    size: int


class SchemaTable:
    """The descriptor sets of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def all(self) -> list[SchemaRow]:
        """Return all schemas of the space, sorted by name."""
        sql = f"SELECT {_COLUMNS} FROM schemas WHERE space = :space ORDER BY name"
        return await self._database.read(lambda tx: [_row(row) for row in tx.all(sql, space=self._space)])

    async def page(self, after: str, limit: int) -> list[SchemaRow]:
        """Return at most `limit` schemas whose names sort after `after`."""
        sql = f"SELECT {_COLUMNS} FROM schemas WHERE space = :space AND name > :after ORDER BY name LIMIT :limit"
        return await self._database.read(
            lambda tx: [_row(row) for row in tx.all(sql, space=self._space, after=after, limit=limit)]
        )

    async def get(self, name: str) -> tuple[SchemaRow, bytes]:
        """Return a schema and its bytes; raise `NotFound` if the space has no schema of that name."""
        sql = f"SELECT {_COLUMNS}, data FROM schemas WHERE space = :space AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, name=name))
        if row is None:
            raise NotFound(f"The space has no schema {name!r}")
        return _row(row[:-1]), bytes(row[-1])

    async def put(
        self,
        name: str,
        data: bytes,
        others: Mapping[str, str],
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
    ) -> tuple[SchemaRow, bool]:
        """Create or replace a schema; return it, and True if it is new. Identical bytes change nothing.

        Raise `ConcurrentChange` unless the other schemas of the space have the versions in `others`. If `if_match` is
        not None, raise `Changed` unless it is the schema's version. If `if_none_match` is True, raise `Changed` if
        the schema exists.
        """
        version = secrets.token_bytes(12)
        existing = "SELECT name, version FROM schemas WHERE space = :space"

        def work(tx: Transaction) -> tuple[SchemaRow, bool]:
            tx.all("SELECT one FROM meta FOR UPDATE")  # a lock: two new schemas could contradict each other
            found = {row[0]: bytes(row[1]).hex() for row in tx.all(existing, space=self._space)}
            before = found.pop(name, None)
            if found != others:
                raise ConcurrentChange("Another request changed the schemas: try again")
            check_unchanged(f"Schema {name!r}", before, if_match, if_none_match)
            same = f"SELECT {_COLUMNS} FROM schemas WHERE space = :space AND name = :name AND data = :data"
            row = tx.first(same, space=self._space, name=name, data=data)
            if row is not None:
                return _row(row), False
            row = tx.first(
                f"""
                INSERT INTO schemas (space, {_COLUMNS}, data)
                VALUES (:space, :name, :version, :now, :size, :data)
                ON CONFLICT (space, name) DO UPDATE SET
                    version = excluded.version, modified = excluded.modified,
                    size = excluded.size, data = excluded.data
                RETURNING {_COLUMNS}""",
                space=self._space,
                name=name,
                version=version,
                now=tx.now,
                size=len(data),
                data=data,
            )
            record(tx, self._space, "schema.set", name, {"size": len(data)})
            assert row is not None  # RETURNING yields the row that was inserted or updated
            return _row(row), before is None

        return await self._database.write(work)

    async def remove(self, name: str, *, if_match: str | None = None) -> None:
        """Remove a schema; raise `NotFound` if it does not exist.

        Raise `Changed` if `if_match` is neither None nor the schema's version.
        """
        sql = "DELETE FROM schemas WHERE space = :space AND name = :name RETURNING version"

        def work(tx: Transaction) -> bool:
            row = tx.first(sql, space=self._space, name=name)
            if row is None:
                return False
            check_unchanged(f"Schema {name!r}", bytes(row[0]).hex(), if_match)
            record(tx, self._space, "schema.removed", name, {})
            return True

        if not await self._database.write(work):
            raise NotFound(f"The space has no schema {name!r}")


def _row(row: Row) -> SchemaRow:
    name, version, modified, size = row
    return SchemaRow(name, bytes(version).hex(), time_of(modified), size)

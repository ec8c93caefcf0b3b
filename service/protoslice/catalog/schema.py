"""Schema of the catalogue: numbered SQL files, applied in order, for both engines.

Alembic would bring SQLAlchemy as a second way to talk to the database; forward-only files need neither.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from protoslice.catalog.database import Database, Transaction
from protoslice.errors import Unsupported

_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "sqlite": {
        "bytes": "blob",
        "text": "text",
        "id": "integer PRIMARY KEY AUTOINCREMENT",
        "composite": "WITHOUT ROWID",
    },
    "postgresql": {
        "bytes": "bytea",
        "text": 'text COLLATE "C"',
        "id": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "composite": "",
    },
}
_LOCK: Final = 0x70726F746F736C63
"""Key of the advisory lock that lets one program upgrade at a time."""


def migrations() -> list[str]:
    """Return the SQL of all migrations in order; the first one makes schema 1."""
    folder = files("protoslice.catalog") / "migrations"
    return [
        each.read_text() for each in sorted(folder.iterdir(), key=lambda each: each.name) if each.name.endswith(".sql")
    ]


async def version_of(database: Database) -> int:
    """Return the schema version of a database, 0 for an empty one."""
    return await database.read(lambda tx: _version(tx, database.dialect), background=True)


async def check(database: Database) -> None:
    """Raise `Unsupported` unless the database has the schema of this program."""
    found, wanted = await version_of(database), len(migrations())
    if found > wanted:
        raise Unsupported(
            f"The database has schema {found}, and this version of Protoslice knows schemas up to {wanted}: "
            "install a newer version"
        )
    if found < wanted:
        raise Unsupported(f"The database has schema {found}, not {wanted}: run `protoslice database upgrade`")


async def migrate(database: Database) -> int:
    """Apply the migrations that a database lacks, in one transaction; return the version that it had."""
    dialect, scripts = database.dialect, migrations()

    def work(tx: Transaction) -> int:
        if dialect == "postgresql":
            tx.all("SELECT pg_advisory_xact_lock(:key)", key=_LOCK)
        found = _version(tx, dialect)
        for script in scripts[found:]:
            for statement in _statements(script, dialect):
                tx.run(statement)
        if found == 0:
            tx.run(
                "INSERT INTO meta (one, schema, catalogue_id) VALUES (1, :schema, :id)",
                schema=len(scripts),
                id=secrets.token_bytes(16),
            )
        elif found < len(scripts):
            tx.run("UPDATE meta SET schema = :schema", schema=len(scripts))
        return found

    return await database.alter(work)


def _version(tx: Transaction, dialect: str) -> int:
    exists = (
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
        if dialect == "sqlite"
        else "SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = 'meta' AND schemaname = current_schema()"
    )
    row = tx.first("SELECT schema FROM meta") if tx.first(exists) else None
    return 0 if row is None else int(row[0])


def _statements(script: str, dialect: str) -> list[str]:
    text = re.sub(r"--[^\n]*", "", script)
    for name, replacement in _TYPES[dialect].items():
        text = text.replace(f"{{{name}}}", replacement)
    return [statement for statement in map(str.strip, text.split(";")) if statement]

"""The schema of the catalogue: numbered SQL files, which are applied in order.

A file applies to both engines, unless its name contains the dialect of one engine, as in `0009.sqlite.sql`. Alembic is
not used, because it would require SQLAlchemy, a second way to use the database. Plain files, which can only upgrade,
are sufficient.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

from protoslice.database.transactions import Alteration, Database, Transaction
from protoslice.errors import StorageDenied, Unsupported

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
"""Key of the advisory lock that keeps two programs from upgrading at the same time."""


def migrations(dialect: str) -> list[str]:
    """Return the SQL of an engine's migrations in order; the first migration creates schema 1."""
    folder = files("protoslice.database") / "migrations"
    found = {each.name: each for each in folder.iterdir()}
    names = sorted(name for name in found if re.fullmatch(rf"\d+(\.{dialect})?\.sql", name))
    return [found[name].read_text() for name in names]


async def version_of(database: Database) -> int:
    """Return the schema version of a database, or 0 for an empty database."""
    return await database.read(lambda tx: version(tx, database.dialect), background=True)


async def check(database: Database) -> None:
    """Raise `Unsupported` unless the database has the schema of this program."""
    found, wanted = await version_of(database), len(migrations(database.dialect))
    refuse_newer(found, wanted)
    if found < wanted:
        raise Unsupported(f"The database has schema {found}, not {wanted}: run `protoslice database upgrade`")
    database.schema = found


def refuse_newer(found: int, known: int) -> None:
    """Raise `Unsupported` if the schema version `found` is newer than the version `known` to this program."""
    if found > known:
        raise Unsupported(
            f"The database has schema {found}, and this version of Protoslice knows schemas up to {known}: "
            "install a newer version"
        )


async def migrate(database: Database) -> None:
    """Apply the missing migrations in one transaction, without checking for other processes."""
    await database.alter(_Migrations(database.dialect))


class _Migrations(Alteration):
    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def is_due(self, tx: Transaction) -> bool:
        return True

    def prepare(self, tx: Transaction) -> None: ...

    def apply(self, tx: Transaction) -> None:
        apply_migrations(tx, self._dialect)


def lock(tx: Transaction, dialect: str) -> None:
    """Wait for other programs that alter the database; for SQLite, a lock file already does this."""
    if dialect == "postgresql":
        tx.all("SELECT pg_advisory_xact_lock(:key)", key=_LOCK)


def apply_migrations(tx: Transaction, dialect: str, progress: Callable[[int], None] = lambda number: None) -> None:
    """Apply the missing migrations; call `progress` with the number of each migration before it is applied."""
    scripts = migrations(dialect)
    lock(tx, dialect)
    found = version(tx, dialect)
    for number, script in enumerate(scripts[found:], found + 1):
        progress(number)
        types = dict(_TYPES[dialect])
        if "{trigrams}" in script:
            types["trigrams"] = _trigrams(tx)
        for statement in _statements(script, types):
            tx.run(statement)
    if found == 0:
        tx.run(
            "INSERT INTO meta (one, schema, catalogue_id) VALUES (1, :schema, :id)",
            schema=len(scripts),
            id=secrets.token_bytes(16),
        )
    elif found < len(scripts):
        tx.run("UPDATE meta SET schema = :schema", schema=len(scripts))


def version(tx: Transaction, dialect: str) -> int:
    """Return the schema version of a database, or 0 for an empty database."""
    exists = (
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
        if dialect == "sqlite"
        else "SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = 'meta' AND schemaname = current_schema()"
    )
    row = tx.first("SELECT schema FROM meta") if tx.first(exists) else None
    return 0 if row is None else int(row[0])


def _trigrams(tx: Transaction) -> str:
    """Return the name of `pg_trgm`'s operator class in PostgreSQL; create the extension if it is missing.

    Raise `Unsupported` if the extension is not installed, and `StorageDenied` if the user may not create it.
    """
    place = """
        SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e
        JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm'"""
    row = tx.first(place)
    if row is None:
        if tx.first("SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name = 'pg_trgm'") is None:
            raise Unsupported(
                "The database needs the extension pg_trgm, by which names are searched: install the contrib package of "
                "PostgreSQL on its machine, then try again"
            )
        try:
            tx.run("CREATE EXTENSION pg_trgm")
        except StorageDenied:
            raise StorageDenied(
                "The database needs the extension pg_trgm, and this user may not create it: run "
                "`CREATE EXTENSION pg_trgm` in this database as its owner, then try again"
            ) from None
        row = tx.all(place)[0]
    return f"{row[0]}.gin_trgm_ops"


def _statements(script: str, types: Mapping[str, str]) -> list[str]:
    text = re.sub(r"--[^\n]*", "", script)
    for name, replacement in types.items():
        text = text.replace(f"{{{name}}}", replacement)
    # Only semicolons at the end of a line separate statements; semicolons in a trigger are followed by text.
    return [statement for statement in map(str.strip, re.split(r";[ ]*(?:\n|$)", text)) if statement]

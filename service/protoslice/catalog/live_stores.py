"""Existence of stores and repositories, for transactions that make something point at them."""

from __future__ import annotations

from typing import Final

from protoslice.catalog.labels import REMOVED
from protoslice.database.transactions import Transaction
from protoslice.errors import Conflict

LIVE: Final = "space = :space AND digest = :digest AND deleted IS NULL"
NAMING: Final = {
    "names": " AND r.kind <> 'files'",
    "commits": "",
    "manifests": " AND r.pushed > 0",
    "kept_files": " AND r.kind <> 'blob'",
}
"""Tables whose rows name stores. Files do not, nor do computed manifests, nor blobs: their manifests do."""


def is_named(digest: str) -> str:
    """Return the SQL condition that a store has a name: a tag, or a name in a registry.

    The condition selects one row of each table, because PostgreSQL may read whole tables for EXISTS.
    """
    return " OR ".join(
        f"(SELECT 1 FROM {table} r WHERE r.space = :space AND r.store = {digest}{more} LIMIT 1) IS NOT NULL"
        for table, more in NAMING.items()
    )


def lock_store(tx: Transaction, space: str, digest: str) -> bool:
    """Return True if a store exists, and keep it from being removed until the transaction ends."""
    return tx.first(f"SELECT id FROM stores WHERE {LIVE} FOR SHARE", space=space, digest=digest) is not None


def require_store(tx: Transaction, space: str, digest: str | None) -> None:
    """Raise `Conflict` unless a store exists, and keep it until the transaction ends; ignore None."""
    if digest is not None and not lock_store(tx, space, digest):
        raise Conflict(f"Store {digest} was removed in the meantime: send the change again")


def lock_repository(tx: Transaction, space: str, id: int) -> bool:
    """Return True if a repository was not removed, and keep it until the transaction ends."""
    sql = "SELECT 1 FROM repositories WHERE space = :space AND id = :id AND protocol <> :removed FOR SHARE"
    return tx.first(sql, space=space, id=id, removed=REMOVED) is not None

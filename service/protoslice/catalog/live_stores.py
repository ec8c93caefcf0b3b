"""Checks that stores and repositories exist, for transactions that insert references to them."""

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
"""Tables whose rows count as names of a store, each with a condition on these rows.

Rows for file paths, computed manifests and blobs do not count; the manifest of a blob names the blob's store.
"""


def is_named(digest: str) -> str:
    """Return the SQL condition that a store has a tag or a name in a registry.

    The condition selects one row of each table, because PostgreSQL may read whole tables for EXISTS.
    """
    return " OR ".join(
        f"(SELECT 1 FROM {table} r WHERE r.space = :space AND r.store = {digest}{more} LIMIT 1) IS NOT NULL"
        for table, more in NAMING.items()
    )


def lock_store(tx: Transaction, space: str, digest: str) -> bool:
    """Return True if a store exists; the store then cannot be removed until the transaction ends."""
    return tx.first(f"SELECT id FROM stores WHERE {LIVE} FOR SHARE", space=space, digest=digest) is not None


def require_store(tx: Transaction, space: str, digest: str | None) -> None:
    """Raise `Conflict` if a store does not exist; otherwise, lock it until the transaction ends. None has no effect."""
    if digest is not None and not lock_store(tx, space, digest):
        raise Conflict(f"Store {digest} was removed in the meantime: send the change again")


def lock_repository(tx: Transaction, space: str, id: int) -> bool:
    """Return True if a repository exists; it then cannot be removed until the transaction ends."""
    sql = "SELECT 1 FROM repositories WHERE space = :space AND id = :id AND protocol <> :removed FOR SHARE"
    return tx.first(sql, space=space, id=id, removed=REMOVED) is not None

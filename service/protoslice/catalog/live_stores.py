"""Stores that exist, for transactions that make something point at one."""

from __future__ import annotations

from typing import Final

from protoslice.catalog.database import Transaction
from protoslice.errors import Conflict

LIVE: Final = "space = :space AND digest = :digest AND deleted IS NULL"


def require_store(tx: Transaction, space: str, digest: str | None) -> None:
    """Raise `Conflict` unless a store exists, which stays until the transaction has ended; None needs none."""
    sql = f"SELECT id FROM stores WHERE {LIVE} FOR SHARE"
    if digest is not None and tx.first(sql, space=space, digest=digest) is None:
        raise Conflict(f"Store {digest} was removed in the meantime: send the change again")

"""Facts derived from stores: small ones are rows, and of larger ones a row says that they are objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.catalog.database import SECOND, Database, Transaction


@dataclass(frozen=True, slots=True)
class DerivedRow:
    """A fact; its `data` is None where an object of the storage holds it."""

    data: bytes | None


class DerivedRecords:
    """Derived facts of the stores of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def get(self, store: str, name: str) -> DerivedRow | None:
        """Return a fact, or None if it is unknown."""
        sql = "SELECT data FROM derived WHERE space = :space AND store = :store AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, store=store, name=name))
        return None if row is None else DerivedRow(None if row[0] is None else bytes(row[0]))

    async def put(self, store: str, name: str, data: bytes | None) -> None:
        """Create or replace a fact; without data, an object holds it."""
        await self._database.write(
            lambda tx: tx.run(
                """
                INSERT INTO derived (space, store, name, made, data) VALUES (:space, :store, :name, :now, :data)
                ON CONFLICT (space, store, name) DO UPDATE SET made = excluded.made, data = excluded.data""",
                space=self._space,
                store=store,
                name=name,
                now=tx.now,
                data=data,
            )
        )

    async def stores(self, after: str, limit: int, *, before: float) -> list[str]:
        """Return at most `limit` stores behind `after` whose facts were made before a time in seconds."""
        sql = """
            SELECT store FROM derived WHERE space = :space AND store > :after
            GROUP BY store HAVING max(made) < :before ORDER BY store LIMIT :limit"""
        values = {"space": self._space, "after": after, "before": int(before * SECOND), "limit": limit}
        return await self._database.read(lambda tx: [row[0] for row in tx.all(sql, **values)], background=True)

    async def remove(self, stores: Sequence[str]) -> None:
        """Remove all facts of stores."""
        rows = [{"space": self._space, "store": store} for store in stores]

        def work(tx: Transaction) -> None:
            tx.many("DELETE FROM derived WHERE space = :space AND store = :store", rows)

        await self._database.write(work, background=True)

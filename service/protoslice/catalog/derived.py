"""Facts derived from stores: small ones are rows, and for larger ones a row names an object."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protoslice.catalog.objects import OwnObject, publish_objects, release_objects
from protoslice.database.transactions import Database, Transaction


@dataclass(frozen=True, slots=True)
class DerivedRow:
    """A fact: its `data`, or the `key` of the object that holds it."""

    data: bytes | None
    key: str | None = None


class DerivedTable:
    """Derived facts of the stores of one space, which are named by their rows."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def get(self, store: int, name: str) -> DerivedRow | None:
        """Return a fact, or None if it is unknown."""
        sql = """
            SELECT d.data, o.key FROM derived d LEFT JOIN objects o ON o.space = d.space AND o.id = d.object
            WHERE d.space = :space AND d.store = :store AND d.name = :name"""
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, store=store, name=name))
        return None if row is None else DerivedRow(None if row[0] is None else bytes(row[0]), row[1])

    async def of_each(self, stores: Collection[str], name: str) -> dict[str, bytes]:
        """Return a small fact of stores by their digests, without those that are unknown."""
        sql = """
            SELECT s.digest, d.data FROM stores s JOIN derived d ON d.space = s.space AND d.store = s.id
            WHERE s.space = :space AND s.digest IN {listed} AND s.deleted IS NULL AND d.name = :name
            AND d.data IS NOT NULL"""
        rows = await self._database.read(lambda tx: tx.among(sql, stores, space=self._space, name=name))
        return {digest: bytes(data) for digest, data in rows}

    async def put_each(self, facts: Mapping[str, bytes], name: str) -> None:
        """Insert a small fact of stores by their digests; one that is known stays."""
        sql = """
            INSERT INTO derived (space, store, name, made, data)
            SELECT space, id, :name, :now, :data FROM stores
            WHERE space = :space AND digest = :digest AND deleted IS NULL ON CONFLICT DO NOTHING"""

        def work(tx: Transaction) -> None:
            key = {"space": self._space, "name": name, "now": tx.now}
            tx.many(sql, [{**key, "digest": digest, "data": data} for digest, data in sorted(facts.items())])

        await self._database.write(work)

    async def put(
        self,
        store: int,
        name: str,
        data: bytes | None,
        *,
        own: OwnObject | None = None,
        pieces: Collection[bytes] = (),
    ) -> None:
        """Create or replace a fact, which is `data` or an object; the store can be found by `pieces` then.

        Raise `ForeignKeyViolation` if the store is gone, `Collected` if the object is.
        """
        key = {"space": self._space, "store": store}

        def work(tx: Transaction) -> None:
            # Others wait here: of two that insert the same fact, the second has to see the object of the first.
            tx.first("SELECT id FROM stores WHERE space = :space AND id = :store FOR UPDATE", **key)
            sql = "SELECT object FROM derived WHERE space = :space AND store = :store AND name = :name"
            old = tx.first(sql, **key, name=name)
            if own is not None:
                publish_objects(tx, self._space, [own])
            tx.run(
                """
                INSERT INTO derived (space, store, name, made, data, object)
                VALUES (:space, :store, :name, :now, :data, :object)
                ON CONFLICT (space, store, name) DO UPDATE SET
                    made = excluded.made, data = excluded.data, object = excluded.object""",
                **key, name=name, now=tx.now, data=data, object=None if own is None else own.id,
            )  # fmt: skip
            if old is not None and old[0] is not None:
                release_objects(tx, self._space, [old[0]])
            sql = "INSERT INTO pieces (space, digest, store) VALUES (:space, :digest, :store) ON CONFLICT DO NOTHING"
            tx.many(sql, [key | {"digest": digest} for digest in sorted(pieces)])

        await self._database.write(work)

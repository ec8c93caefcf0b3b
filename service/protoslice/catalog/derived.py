"""Facts derived from stores, which are deleted with the stores.

A small fact is part of its row; a larger fact is an object of the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.manifest import checked, with_digest
from protoslice.catalog.new_objects import NewObjects
from protoslice.catalog.objects import OwnObject, object_id, publish_objects, release_objects
from protoslice.concurrency.executor import Worker
from protoslice.database.transactions import Database, Transaction
from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, Storage


@dataclass(frozen=True, slots=True)
class DerivedRow:
    """A fact, either as `data` or as the `key` of the object that holds it."""

    data: bytes | None
    key: str | None = None


class DerivedTable:
    """The derived facts of the stores of one space; a store is identified by the id of its row."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def get(self, store: int, name: str) -> DerivedRow | None:
        """Return a store's fact, or None if it is unknown."""
        sql = """
            SELECT d.data, o.key FROM derived d LEFT JOIN objects o ON o.space = d.space AND o.id = d.object
            WHERE d.space = :space AND d.store = :store AND d.name = :name"""
        row = await self._database.read(lambda tx: tx.first(sql, space=self._space, store=store, name=name))
        return None if row is None else DerivedRow(None if row[0] is None else bytes(row[0]), row[1])

    async def of_each(self, stores: Collection[str], name: str) -> dict[str, bytes]:
        """Return the fact `name` of several stores, by store digest; leave out missing facts and facts in objects."""
        sql = """
            SELECT s.digest, d.data FROM stores s JOIN derived d ON d.space = s.space AND d.store = s.id
            WHERE s.space = :space AND s.digest IN {listed} AND s.deleted IS NULL AND d.name = :name
            AND d.data IS NOT NULL"""
        rows = await self._database.read(lambda tx: tx.among(sql, stores, space=self._space, name=name))
        return {digest: bytes(data) for digest, data in rows}

    async def put_each(self, facts: Mapping[str, bytes], name: str) -> None:
        """Insert the fact `name` of several stores, by the stores' digests; facts that exist already stay unchanged."""
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
        """Create or replace a fact, which is either `data` or the object `own`.

        Also record that the store contains the `pieces`. Raise `ForeignKeyViolation` if the store is gone, and
        `Collected` if the object is gone.
        """
        key = {"space": self._space, "store": store}

        def work(tx: Transaction) -> None:
            # If two requests insert the same fact, the second waits here, and then releases the first one's object.
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


LARGEST_ROW: Final = 64 << 10
"""Largest size in bytes of a fact that is stored in the database; a larger fact is an object."""


class DerivedSources:
    """The derived facts of the stores of one space, which are loaded and saved with their checksums."""

    def __init__(
        self, records: DerivedTable, storage: Storage, new_objects: Callable[[], NewObjects], worker: Worker
    ) -> None:
        self.records = records
        self.storage = storage
        self.new_objects = new_objects
        self.worker = worker

    def of(self, row: int) -> DerivedFacts:
        """Return the facts of the store whose row in the catalogue has the id `row`."""
        return DerivedFacts(self, row)

    async def load_each(self, name: str, stores: Collection[str]) -> dict[str, bytes]:
        """Return the small fact called `name` of several stores, by store id; leave out missing or damaged facts."""
        stored, found = await self.records.of_each(stores, name), dict[str, bytes]()

        def opened() -> dict[str, bytes]:
            for store, each in stored.items():
                with suppress(IntegrityError):
                    found[store] = checked(each, name)
            return found

        return await self.worker.run_if_large(sum(map(len, stored.values())), opened)

    async def save_each(self, name: str, facts: Mapping[str, bytes]) -> None:
        """Save the fact called `name` of several stores, but leave out facts that are too large for a row.

        Errors are ignored, because a fact can be computed again.
        """
        small = {store: with_digest(fact) for store, fact in facts.items() if len(fact) <= LARGEST_ROW}
        if small:
            with suppress(ProtosliceError):
                await self.records.put_each(small, name)


class DerivedFacts:
    """The derived facts of one store, by name: small facts are rows of the database, large ones objects."""

    def __init__(self, sources: DerivedSources, row: int) -> None:
        self._sources = sources
        self._row = row

    async def has(self, name: str) -> bool:
        """Return True if a fact called `name` exists, even if it is damaged."""
        return await self._sources.records.get(self._row, name) is not None

    async def load(self, name: str) -> bytes | None:
        """Return the fact called `name`, or None if it is missing or damaged."""
        found = await self._sources.records.get(self._row, name)
        with suppress(NotFound, IntegrityError):
            if found is not None:
                stored = found.data
                if stored is None:
                    stored = (await self._sources.storage.get(ObjectKey(found.key or ""))).data
                return await self._sources.worker.run_if_large(len(stored), lambda: checked(stored, name))
        return None

    async def save(self, name: str, data: bytes, *, pieces: Collection[bytes] = ()) -> None:
        """Save a fact, and record the `pieces` that the store contains.

        Errors are ignored, because the fact can be computed again.
        """
        sources = self._sources
        with suppress(ProtosliceError):
            stored = await sources.worker.run_if_large(len(data), lambda: with_digest(data))
            if len(data) <= LARGEST_ROW:
                await sources.records.put(self._row, name, stored, pieces=pieces)
                return
            objects = sources.new_objects()
            try:
                key = await objects.put(stored)
                (own,) = objects.own([object_id(key.text)], counted=False)
                with objects.publishing():
                    await sources.records.put(self._row, name, None, own=own, pieces=pieces)
                objects.kept([own])
            finally:
                objects.end()

"""Facts derived from a store, which go with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from protoslice.catalog.derived import DerivedTable
from protoslice.catalog.objects import object_id
from protoslice.concurrency.executor import Worker
from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.writing.new_objects import NewObjects

LARGEST_ROW: Final = 64 << 10
"""Bytes of a fact in the database; a larger one is an object."""


class DerivedSources:
    """Where derived facts of the stores of one space are kept."""

    def __init__(
        self, records: DerivedTable, storage: Storage, new_objects: Callable[[], NewObjects], worker: Worker
    ) -> None:
        self.records = records
        self.storage = storage
        self.new_objects = new_objects
        self.worker = worker

    def of(self, row: int) -> DerivedFacts:
        """Return the facts of a store, which a row of the catalogue stands for."""
        return DerivedFacts(self, row)

    async def load_each(self, name: str, stores: Collection[str]) -> dict[str, bytes]:
        """Return the small fact called `name` of stores by their ids, without those that are missing or damaged."""
        sealed, found = await self.records.of_each(stores, name), dict[str, bytes]()

        def opened() -> dict[str, bytes]:
            for store, each in sealed.items():
                with suppress(IntegrityError):
                    found[store] = unseal(each, name)
            return found

        return await self.worker.sized(sum(map(len, sealed.values())), opened)

    async def save_each(self, name: str, facts: Mapping[str, bytes]) -> None:
        """Write the fact called `name` of stores, but for large ones; errors are ignored, as losing one costs time."""
        small = {store: seal(fact) for store, fact in facts.items() if len(fact) <= LARGEST_ROW}
        if small:
            with suppress(ProtosliceError):
                await self.records.put_each(small, name)


class DerivedFacts:
    """Derived facts of one store, by name: rows of the database, and objects where they are large."""

    def __init__(self, sources: DerivedSources, row: int) -> None:
        self._sources = sources
        self._row = row

    async def has(self, name: str) -> bool:
        """Return True if a fact called `name` exists, even a damaged one."""
        return await self._sources.records.get(self._row, name) is not None

    async def load(self, name: str) -> bytes | None:
        """Return the fact called `name`; None if it is missing or damaged."""
        found = await self._sources.records.get(self._row, name)
        with suppress(NotFound, IntegrityError):
            if found is not None:
                sealed = found.data
                if sealed is None:
                    sealed = (await self._sources.storage.get(ObjectKey(found.key or ""))).data
                return await self._sources.worker.sized(len(sealed), lambda: unseal(sealed, name))
        return None

    async def save(self, name: str, data: bytes, *, pieces: Collection[bytes] = ()) -> None:
        """Write a fact, and the `pieces` by which its store is found; errors are ignored, as losing one costs time."""
        sources = self._sources
        with suppress(ProtosliceError):
            sealed = await sources.worker.sized(len(data), lambda: seal(data))
            if len(data) <= LARGEST_ROW:
                await sources.records.put(self._row, name, sealed, pieces=pieces)
                return
            objects = sources.new_objects()
            try:
                key = await objects.put(sealed)
                (own,) = objects.own([object_id(key.text)], counted=False)
                with objects.publishing():
                    await sources.records.put(self._row, name, None, own=own, pieces=pieces)
                objects.kept([own])
            finally:
                objects.end()

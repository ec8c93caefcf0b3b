"""Facts derived from a store; garbage collection removes those of removed stores."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from protoslice.catalog.derived import DerivedRecords
from protoslice.concurrency.executor import Worker
from protoslice.errors import Conflict, IntegrityError, NotFound, ProtosliceError
from protoslice.storage import Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys

LARGEST_ROW: Final = 64 << 10
"""Bytes of a fact in the database; a larger one is an object."""


class DerivedObjects:
    """Derived facts of one store in the storage, by name."""

    def __init__(self, storage: Storage, store_id: str, worker: Worker) -> None:
        self._storage = storage
        self._store_id = store_id
        self._worker = worker

    async def has(self, name: str) -> bool:
        """Return True if a fact called `name` exists, even a damaged one."""
        try:
            await self._storage.stat(keys.derived(self._store_id, name))
        except NotFound:
            return False
        return True

    async def load(self, name: str) -> bytes | None:
        """Return the fact called `name`; None if it is missing or damaged."""
        key = keys.derived(self._store_id, name)
        with suppress(NotFound, IntegrityError, Conflict):
            sealed = (await self._storage.get(key)).data
            return await self._worker.sized(len(sealed), lambda: unseal(sealed, name))
        return None

    async def save(self, name: str, data: bytes) -> None:
        """Write a fact; raise errors of the storage."""
        # Another replica can only have written the same bytes.
        sealed = await self._worker.sized(len(data), lambda: seal(data))
        await self._storage.put(keys.derived(self._store_id, name), sealed)


class DerivedFacts:
    """Derived facts of one store, by name: rows of the database, and objects where they are large."""

    def __init__(self, records: DerivedRecords, storage: Storage, store_id: str, worker: Worker) -> None:
        self._records = records
        self._objects = DerivedObjects(storage, store_id, worker)
        self._store_id = store_id
        self._worker = worker

    async def load(self, name: str) -> bytes | None:
        """Return the fact called `name`; None if it is missing or damaged."""
        row = await self._records.get(self._store_id, name)
        if row is None:
            return None
        sealed = row.data
        if sealed is None:
            return await self._objects.load(name)
        with suppress(IntegrityError):
            return await self._worker.sized(len(sealed), lambda: unseal(sealed, name))
        return None

    async def save(self, name: str, data: bytes) -> None:
        """Write a fact; errors are ignored, since losing one costs only time."""
        with suppress(ProtosliceError):
            sealed = None
            if len(data) <= LARGEST_ROW:
                sealed = await self._worker.sized(len(data), lambda: seal(data))
            else:
                await self._objects.save(name, data)
            await self._records.put(self._store_id, name, sealed)

"""Facts derived from a store and kept beside it; garbage collection removes those of removed stores."""

from __future__ import annotations

from contextlib import suppress

from protoslice.concurrency.executor import Worker
from protoslice.errors import Conflict, IntegrityError, NotFound, ProtosliceError
from protoslice.storage import Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys


class DerivedFacts:
    """Derived facts of one store, by name."""

    def __init__(self, storage: Storage, store_id: str, worker: Worker) -> None:
        self._storage = storage
        self._store_id = store_id
        self._worker = worker

    async def has(self, name: str) -> bool:
        """True when a fact called `name` exists, even a damaged one."""
        try:
            await self._storage.stat(keys.derived(self._store_id, name))
        except NotFound:
            return False
        return True

    async def load(self, name: str) -> bytes | None:
        """The fact called `name`; None when it is missing or damaged, so that the caller computes it anew."""
        key = keys.derived(self._store_id, name)
        with suppress(NotFound, IntegrityError, Conflict):
            sealed = (await self._storage.get(key)).data
            return await self._worker.sized(len(sealed), lambda: unseal(sealed, name))
        return None

    async def save(self, name: str, data: bytes) -> None:
        """Write a fact; storage errors are ignored."""
        # Losing a fact costs only time, and another replica can only have written the same bytes.
        with suppress(ProtosliceError):
            sealed = await self._worker.sized(len(data), lambda: seal(data))
            await self._storage.put(keys.derived(self._store_id, name), sealed)

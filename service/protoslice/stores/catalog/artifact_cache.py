"""What can be made anew from a store, kept beside it once it is made. A collector removes it with the store."""

from __future__ import annotations

from contextlib import suppress

from protoslice.errors import Conflict, IntegrityError, NotFound, ProtosliceError
from protoslice.storage import Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys

__all__ = ["ArtifactCache"]


class ArtifactCache:
    """What has been made of one store, by name."""

    def __init__(self, storage: Storage, store_id: str) -> None:
        self._storage = storage
        self._store_id = store_id

    async def has(self, name: str) -> bool:
        """Whether something was kept, damaged or not."""
        try:
            await self._storage.stat(keys.derived(self._store_id, name))
        except NotFound:
            return False
        return True

    async def load(self, name: str) -> bytes | None:
        """What was kept; none where nothing was, and where it is damaged: it is to be made anew then."""
        key = keys.derived(self._store_id, name)
        with suppress(NotFound, IntegrityError, Conflict):
            return unseal(await self._storage.get_range(key, 0, (await self._storage.stat(key)).size), name)
        return None

    async def save(self, name: str, data: bytes) -> None:
        """Keep something, if that is possible. What another replica kept meanwhile says the same."""
        with suppress(ProtosliceError):
            await self._storage.put(keys.derived(self._store_id, name), seal(data))

"""Start-up probe: what is written can be read and replaced, and is gone once it is deleted."""

from __future__ import annotations

from contextlib import suppress
from secrets import token_hex
from typing import Final

from protoslice.errors import NotFound, StorageError, StorageUnavailable, Unsupported
from protoslice.storage.interface import Storage
from protoslice.storage.keys import ObjectKey

READ_ONLY: Final = "This storage is read-only: it can serve stores, but not accept uploads"
FOLDER: Final = ObjectKey("probe")


async def probe(storage: Storage) -> None:
    """Raise `Unsupported`, with the reason, if `storage` cannot be written; leave no object behind."""
    if not storage.abilities.write:
        raise Unsupported(READ_ONLY)
    key = FOLDER / token_hex(16)
    try:
        await _probe(storage, key)
    except Exception:
        with suppress(StorageError):  # the first error is the one to report
            await storage.delete(key)
        raise
    with suppress(StorageUnavailable, NotFound):
        await storage.delete(key)
        await storage.get_range(key, 0, 3)
        raise Unsupported("This storage does not delete what it is asked to delete: do not use it")


async def _probe(storage: Storage, key: ObjectKey) -> None:
    await storage.put(key, b"old")
    await storage.put(key, b"new")
    with suppress(NotFound):
        if await storage.get_range(key, 0, 3) == b"new":
            return
    raise Unsupported("This storage does not return what was written: do not use it")

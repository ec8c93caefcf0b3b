"""Start-up probe for storages that ignore conditional requests."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from secrets import token_hex
from typing import Final

from protoslice.errors import Conflict, StorageError, StorageUnavailable, Unsupported
from protoslice.storage.interface import Storage
from protoslice.storage.keys import ObjectKey

FOLDER: Final = ObjectKey("probe")


async def probe(storage: Storage) -> None:
    """Raise `Unsupported`, with the reason, when writing to `storage` is unsafe; leaves no object behind.

    Many servers that speak S3 ignore conditional headers and report success. Two replicas on such a server would
    overwrite each other's tags and manifests unnoticed.
    """
    claimed = storage.abilities
    if not (claimed.write and claimed.create_if_absent and claimed.compare_and_set):
        raise Unsupported(
            "This storage is read-only or has no conditional writes: it can serve stores, but not accept uploads"
        )
    key = FOLDER / token_hex(16)
    try:
        await _probe(storage, key)
    except Exception:
        with suppress(StorageError):  # the first error is the one to report
            await storage.delete(key)
        raise
    with suppress(StorageUnavailable):
        await storage.delete(key)


async def _probe(storage: Storage, key: ObjectKey) -> None:
    etag = await storage.put_if_absent(key, b"first")
    await _must_conflict("create-if-absent", storage.put_if_absent(key, b"other"))
    renewed = await storage.put(key, b"second", if_etag=etag)
    await _must_conflict("compare-and-set", storage.put(key, b"other", if_etag=etag))
    await _must_conflict("pinned reads", storage.get_range(key, 0, 1, if_etag=etag))
    if await storage.get_range(key, 0, 6, if_etag=renewed) != b"second":
        raise Unsupported("This storage does not return what was written: do not use it")
    page = await storage.list(FOLDER, limit=1000)
    if page.after is None and key not in {item.key for item in page.items}:
        raise Unsupported("This storage does not list what was just written: do not use it")
    if not storage.abilities.conditional_delete:
        await storage.try_conditional_delete(key, renewed, etag)


async def _must_conflict(what: str, call: Coroutine[object, object, object]) -> None:
    with suppress(Conflict):
        await call
        raise Unsupported(
            f"This storage ignores {what}, so replicas would overwrite each other: it cannot be used for writing"
        )

"""Files that a commit keeps from another: the one place that knows how stores share them."""

from __future__ import annotations

from collections.abc import Mapping

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict
from protoslice.stores import Ingest, Stores

__all__ = ["Place", "keep"]

Place = tuple[str, str]
"""Store and path of a file."""


async def keep(ingest: Ingest, stores: Stores, files: Mapping[str, Place]) -> None:
    """Make files of existing stores files of a new one, by their new paths; no bytes are written."""
    names = sorted({store for store, _ in files.values()})
    refs = dict(zip(names, await map_concurrently(stores.files, names), strict=True))
    for store, path in files.values():
        if path not in refs[store]:
            raise Conflict(f"the file {path!r} of store {store} lies elsewhere: send it")
    await ingest.take({path: refs[store][old] for path, (store, old) in files.items()})

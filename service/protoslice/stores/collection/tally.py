"""Tally of a storage: counts that a collection meets in its listings, and the record of the last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import Storage
from protoslice.stores.clock import now
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys

_WHAT: Final = "the record of a storage's totals"


@dataclass(frozen=True, slots=True)
class StorageTally:
    """Counts of what a collection left."""

    stores: int = 0
    tags: int = 0
    stored_bytes: int = 0
    """Bytes of all objects of uploads, each once, and of the files of MLflow's artifacts."""

    def __add__(self, other: StorageTally) -> StorageTally:
        """The counts of both, as of two spaces."""
        return StorageTally(self.stores + other.stores, self.tags + other.tags, self.stored_bytes + other.stored_bytes)


@dataclass(frozen=True, slots=True)
class KeptTally:
    """Counts of all spaces of a storage, with the seconds since the epoch at which they were made.

    None for what nobody has counted yet: a collection counts all but logical bytes, which take a read of each manifest.
    """

    stores: int | None = None
    tags: int | None = None
    stored_bytes: int | None = None
    at: float | None = None
    logical_bytes: int | None = None
    logical_at: float | None = None


async def last_tally(storage: Storage) -> KeptTally:
    """The tally that was kept last; one without counts where there is none that can be read."""
    try:
        return _decoded((await storage.get(keys.TALLY)).data)
    except (NotFound, IntegrityError):
        return KeptTally()


async def keep_tally(storage: Storage, tally: StorageTally) -> None:
    """Keep the counts of a collection of all spaces; of several at once those of the last stay."""
    await _keep(storage, {**asdict(tally), "at": now().timestamp()})


async def keep_logical_bytes(storage: Storage, count: int) -> None:
    """Keep the bytes of the files of all stores of all spaces."""
    await _keep(storage, {"logical_bytes": count, "logical_at": now().timestamp()})


async def _keep(storage: Storage, counted: Mapping[str, Any]) -> None:
    found = replace(await last_tally(storage), **counted)
    await storage.put(keys.TALLY, seal(json.dumps(asdict(found)).encode()))


def _decoded(data: bytes) -> KeptTally:
    try:
        return KeptTally(**json.loads(unseal(data, _WHAT)))
    except (ValueError, TypeError) as error:
        raise IntegrityError(f"{_WHAT} does not parse") from error

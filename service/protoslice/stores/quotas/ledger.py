"""Ledger of a space: its quota and what it holds, in a record that replicas and collectors share."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from protoslice.errors import Conflict, IntegrityError, NotFound, StorageUnavailable
from protoslice.storage import Storage
from protoslice.stores.catalog.named_records import TRIES, NamedRecords
from protoslice.stores.layout import keys
from protoslice.stores.quotas.model import Quota

_WHAT: Final = "ledger"


@dataclass(frozen=True, slots=True)
class SpaceLedger:
    """Quota of a space, and what was counted in it."""

    quota: Quota = field(default_factory=Quota)
    stored_bytes: int = 0
    stores: int = 0
    counted: float | None = None
    """Time of the last count by a collector, in seconds since the epoch; None before the first."""

    def plus(self, stored_bytes: int, stores: int) -> SpaceLedger:
        """The ledger with so much more, or less, in the space."""
        return replace(self, stored_bytes=self.stored_bytes + stored_bytes, stores=self.stores + stores)

    def encode(self) -> bytes:
        """Serialize the ledger to JSON that no other call makes."""
        return json.dumps(asdict(self) | {"write": secrets.token_hex(8)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> SpaceLedger:
        """Parse the output of `encode`; `IntegrityError` for anything else."""
        try:
            said = json.loads(data)
            quota = Quota.parse(said["quota"])
            return cls(quota, int(said["stored_bytes"]), int(said["stores"]), said["counted"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError("the ledger of a space does not parse") from error


class Ledgers:
    """The ledger of one space, changed by compare-and-set."""

    def __init__(self, storage: Storage) -> None:
        self._records = NamedRecords(storage, keys.LEDGER, _WHAT)

    async def read(self) -> SpaceLedger:
        """The ledger; an empty one where none has been written."""
        with suppress(NotFound):
            return SpaceLedger.decode((await self._records.read(keys.LEDGER))[0])
        return SpaceLedger()

    async def change(self, changed: Callable[[SpaceLedger], SpaceLedger]) -> SpaceLedger:
        """Replace the ledger by what `changed` makes of it; returns the new one.

        A lost answer may count a change twice: too much is counted then, until the next collection.
        """
        for _ in range(TRIES):
            with suppress(Conflict):
                try:
                    data, stat = await self._records.read(keys.LEDGER)
                except NotFound:
                    ledger = changed(SpaceLedger())
                    await self._records.create(keys.LEDGER, ledger.encode())
                    return ledger
                ledger = changed(SpaceLedger.decode(data))
                await self._records.replace(keys.LEDGER, ledger.encode(), stat.etag)
                return ledger
        raise StorageUnavailable("the ledger of the space keeps changing")

    async def recount(self, before: SpaceLedger, stored_bytes: int, stores: int, moment: float) -> None:
        """Replace the counts of `before` by those of a collector that began at `moment`, and keep the quota.

        A space that is empty, and was, gets no ledger.

        What replicas have told since then is added: it may have been counted too, and is too much until the next time.
        """
        if before == SpaceLedger() and not (stored_bytes or stores):
            return
        await self.change(
            lambda now: SpaceLedger(
                now.quota,
                stored_bytes + now.stored_bytes - before.stored_bytes,
                stores + now.stores - before.stores,
                moment,
            )
        )

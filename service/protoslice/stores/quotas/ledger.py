"""Ledger of a space: its quota and what it holds, in a record that replicas and collectors share."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, StorageUnavailable
from protoslice.storage import Storage
from protoslice.stores.catalog.named_records import TRIES, NamedRecords
from protoslice.stores.envelope import unseal
from protoslice.stores.layout import keys
from protoslice.stores.quotas.model import Quota

_log = logging.getLogger(__name__)

_WHAT: Final = "ledger"
_DAMAGED: Final = (
    "the usage record of the space does not parse: run `protoslice space set` to create a new "
    "one and `protoslice gc` to fill it"
)


@dataclass(frozen=True, slots=True)
class SpaceLedger:
    """Quota of a space, and what was counted in it."""

    quota: Quota = field(default_factory=Quota)
    stored_bytes: int = 0
    stores: int = 0
    counted: float | None = None
    """Time of the last count by a collector, in seconds since the epoch; None before the first."""

    def plus(self, stored_bytes: int, stores: int) -> SpaceLedger:
        """The ledger with so much more, or less, in the space, never below zero."""
        # Content from before the first count was never counted, and may go now.
        return replace(self, stored_bytes=max(0, self.stored_bytes + stored_bytes), stores=max(0, self.stores + stores))

    def encode(self) -> bytes:
        """Serialize the ledger to JSON that no other call makes."""
        return json.dumps(asdict(self) | {"write": secrets.token_hex(8)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> SpaceLedger:
        """Parse the output of `encode`; `IntegrityError` for anything else."""
        try:
            said = json.loads(data)
            counted = said["counted"]
            return cls(
                Quota.parse(said["quota"]),
                max(0, _whole(said["stored_bytes"])),
                max(0, _whole(said["stores"])),
                None if counted is None else float(counted),
            )
        except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise IntegrityError(_DAMAGED) from error


class Ledgers:
    """The ledger of one space, changed by compare-and-set."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._records = NamedRecords(storage, keys.LEDGER, _WHAT)

    async def read(self) -> SpaceLedger:
        """The ledger, empty where none has been written; `IntegrityError` for one that does not parse."""
        return (await self._there(None))[0]

    async def read_if_sound(self) -> SpaceLedger | None:
        """The ledger as `read` gives it; None for one that does not parse."""
        with suppress(IntegrityError):
            return await self.read()
        return None

    async def change(
        self, changed: Callable[[SpaceLedger], SpaceLedger], *, mended: SpaceLedger | None = None
    ) -> SpaceLedger:
        """Replace the ledger by what `changed` makes of it; returns the new one.

        `mended` takes the place of a ledger that does not parse; without it that is an `IntegrityError`.
        A lost answer may count a change twice: too much is counted then, until the next collection.
        """
        for _ in range(TRIES):
            with suppress(Conflict):
                there, etag = await self._there(mended)
                ledger = changed(there)
                if etag is None:
                    await self._records.create(keys.LEDGER, ledger.encode())
                else:
                    await self._records.replace(keys.LEDGER, ledger.encode(), etag)
                return ledger
        raise StorageUnavailable("the usage record of the space is being changed by other requests: try again")

    async def recount(self, before: SpaceLedger | None, stored_bytes: int, stores: int, moment: float) -> None:
        """Replace the counts of `before` by those of a collector that began at `moment`, and keep the quota.

        A space that is empty, and was, gets no ledger. One that does not parse, which `before` is None for, is made
        anew, without a quota of its own.

        What replicas have told since then is added: it may have been counted too, and is too much until the next time.
        """
        if before == SpaceLedger() and not (stored_bytes or stores):
            return

        def counted(now: SpaceLedger) -> SpaceLedger:
            found = SpaceLedger(now.quota, stored_bytes, stores, moment)
            if before is None:
                return found
            return found.plus(now.stored_bytes - before.stored_bytes, now.stores - before.stores)

        if before is None:
            _log.warning("the usage record of a space did not parse and was created again: set the space's quota again")
        await self.change(counted, mended=before or SpaceLedger())

    async def _there(self, mended: SpaceLedger | None) -> tuple[SpaceLedger, str | None]:
        """The ledger, or `mended` for one that does not parse, and its entity tag; None where there is none."""
        try:
            data, stat = await self._records.read(keys.LEDGER)
            return SpaceLedger.decode(data), stat.etag
        except NotFound:
            return SpaceLedger(), None
        except IntegrityError as error:
            if mended is None:
                raise IntegrityError(_DAMAGED) from error
        # With its entity tag: another replica may have mended it meanwhile, whose ledger stays then.
        found = await self._storage.get(keys.LEDGER)
        with suppress(IntegrityError):
            return SpaceLedger.decode(unseal(found.data, _WHAT)), found.stat.etag
        return mended, found.stat.etag


def _whole(value: object) -> int:
    """A whole number of a record; `TypeError` for anything else."""
    if type(value) is not int:
        raise TypeError("a count in the usage record is not a whole number")
    return value

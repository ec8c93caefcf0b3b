"""Key of the service: a secret that all replicas share, part of every key of signatures and seals."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from protoslice.concurrency.singleflight import SingleFlight
from protoslice.database.transactions import Database, Row, Transaction
from protoslice.errors import IntegrityError

REMEMBERED_SECONDS: Final = 5.0
"""Time until the key is read again: all that it vouched for ends with it."""
_BYTES: Final = 32


class ServiceKey:
    """Key in the catalogue, made by the first replica that needs it, and bound to secrets outside it, if there are any.

    With several secrets there are several keys: the first signs and seals, all of them verify.
    """

    def __init__(self, database: Database, secrets: Sequence[str] = ()) -> None:
        self._database = database
        self._secrets = secrets
        self._found: tuple[bytes, ...] = ()
        self._until = -math.inf
        self._asking: SingleFlight[None, tuple[bytes, ...]] = SingleFlight()

    async def get(self) -> bytes:
        """Return the key that signs; see `all`."""
        return (await self.all())[0]

    async def all(self) -> tuple[bytes, ...]:
        """Return the keys that verify, as they were some seconds ago or are now."""
        if time.monotonic() < self._until:
            return self._found
        return await self._asking.get(None, self._ask)

    async def _ask(self) -> tuple[bytes, ...]:
        asked = time.monotonic()
        self._found = await self._read()
        self._until = asked + REMEMBERED_SECONDS
        return self._found

    async def _read(self) -> tuple[bytes, ...]:
        def work(tx: Transaction) -> Row | None:
            tx.run("UPDATE meta SET service_key = :made WHERE service_key IS NULL", made=secrets.token_bytes(_BYTES))
            return tx.first("SELECT service_key FROM meta")

        row = await self._database.read(
            lambda tx: tx.first("SELECT service_key FROM meta WHERE service_key IS NOT NULL")
        )
        row = row or await self._database.write(work)
        found = b"" if row is None else bytes(row[0])
        if len(found) != _BYTES:
            raise IntegrityError(
                "The service key in the database is damaged: run UPDATE meta SET service_key = NULL, and sign in again"
            )
        # A reader of the whole database has this key: with a secret of the operator, it is not enough.
        return tuple(hmac.digest(each.encode(), found, sha256) for each in self._secrets) or (found,)


def fingerprints(secrets: Sequence[str]) -> list[str]:
    """Return what the database keeps of the secrets of a process; `-` stands for none.

    These 16 bits tell secrets apart that differ by mistake. They do not confirm a guess: one in 65 536 guesses
    fits, so that a weak secret is no easier to find for those who read the database.
    """
    return [hmac.digest(each.encode(), b"protoslice signing secret", sha256).hex()[:4] for each in secrets] or ["-"]

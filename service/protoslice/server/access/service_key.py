"""Key of the service: a secret that all replicas share, part of every key of signatures and seals."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from hashlib import sha256
from typing import Final

from protoslice.catalog.database import Database, Row, Transaction
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import IntegrityError

REMEMBERED_SECONDS: Final = 5.0
"""Time until the key is read again: all that it vouched for ends with it."""
_BYTES: Final = 32


class ServiceKey:
    """Key in the catalogue, made by the first replica that needs it, and bound to a secret outside it."""

    def __init__(self, database: Database, secret: str | None = None) -> None:
        self._database = database
        self._secret = secret
        self._found = b""
        self._until = -math.inf
        self._asking: SingleFlight[None, bytes] = SingleFlight()

    async def get(self) -> bytes:
        """The key, as it was some seconds ago or is now."""
        if time.monotonic() < self._until:
            return self._found
        return await self._asking.get(None, self._ask)

    async def _ask(self) -> bytes:
        asked = time.monotonic()
        self._found = await self._read()
        self._until = asked + REMEMBERED_SECONDS
        return self._found

    async def _read(self) -> bytes:
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
        return found if self._secret is None else hmac.digest(self._secret.encode(), found, sha256)

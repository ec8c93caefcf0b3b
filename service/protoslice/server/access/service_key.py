"""Key of the service: a secret that all replicas share, part of every key of signatures and seals."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from hashlib import sha256
from typing import Final

from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import Storage
from protoslice.stores.layout import keys

REMEMBERED_SECONDS: Final = 5.0
"""Time until the key is read again: all that it vouched for ends with it."""
_BYTES: Final = 32


class ServiceKey:
    """Key in a storage, made by the first replica that needs it, and bound to a secret outside it."""

    def __init__(self, storage: Storage, secret: str | None = None) -> None:
        self._storage = storage
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
        made = secrets.token_bytes(_BYTES).hex().encode()
        try:
            made = (await self._storage.get(keys.SERVICE_KEY)).data
        except NotFound:
            try:
                await self._storage.put_if_absent(keys.SERVICE_KEY, made)
            except Conflict:  # another replica was first, or the answer of this one's own write was lost
                made = (await self._storage.get(keys.SERVICE_KEY)).data
        try:
            found = bytes.fromhex(made.decode())
        except ValueError:
            found = b""
        if len(found) != _BYTES:
            raise IntegrityError(f"{keys.SERVICE_KEY} is damaged: remove it, and the next sign-in creates a new one")
        # A reader of the whole storage has this key: with a secret of the operator, it is not enough.
        return found if self._secret is None else hmac.digest(self._secret.encode(), found, sha256)

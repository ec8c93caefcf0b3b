"""Keys of issuers: fetched in the background, kept while an issuer is away."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey

from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import InvalidInput, ProtosliceError, StorageUnavailable
from protoslice.server.auth.oidc.documents import Documents, endpoint, parse_object
from protoslice.server.auth.oidc.trust import Issuer

REFRESH_SECONDS: Final = 900.0
"""Age at which keys are fetched anew: a key that the issuer withdraws ends within it."""
AGAIN_SECONDS: Final = 30.0
"""Time between two fetches, however many unknown key ids come, or however often the issuer fails."""
_PATIENCE: Final = 3.0
"""Seconds that a request waits for a fetch."""
_MOST_KEYS: Final = 64
_RSA_BITS: Final = 2048

_log = logging.getLogger(__name__)


class IssuerKeys:
    """Public keys of one issuer by key id."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        tls = None if issuer.ca_file is None else _trusting(issuer)
        self.documents = Documents(issuer.networks, tls)
        self._keys: Mapping[str | None, Key] = {}
        self._tried = -math.inf
        self._fetching: SingleFlight[None, None] = SingleFlight()

    async def find(self, id: str | None) -> Key | None:
        """The key of an id, or the only one for None. Keys are fetched for an unknown id, at most so often."""
        found = self._known(id)
        if found is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._fetching.get(None, self._refresh), _PATIENCE)
            found = self._known(id)
        return found

    async def keep_fresh(self) -> None:
        """Fetch the keys now, and again and again until cancelled."""
        while True:
            await self._fetching.get(None, self._refresh)
            await asyncio.sleep(REFRESH_SECONDS if self._keys else AGAIN_SECONDS)

    async def close(self) -> None:
        """Close the connections."""
        await self._fetching.idle()
        await self.documents.close()

    def _known(self, id: str | None) -> Key | None:
        if id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(id)

    async def _refresh(self) -> None:
        if time.monotonic() - self._tried < AGAIN_SECONDS:
            return
        self._tried = time.monotonic()
        try:
            keys = public_keys(await self._document())
            if not keys:
                raise StorageUnavailable("it publishes no usable key")
            self._keys = keys
        except (ProtosliceError, OSError) as error:
            # A failure of the issuer is no failure of the service: those whose key is known enter as before.
            _log.warning("could not refresh the keys of issuer %s, keeping the old ones: %s", self._issuer.url, error)

    async def _document(self) -> Mapping[str, Any]:
        issuer = self._issuer
        if issuer.keys_file is not None:
            return parse_object(await asyncio.to_thread(issuer.keys_file.read_bytes))
        said = await self.documents.configuration(issuer.url)
        return await self.documents.get(endpoint(said, "jwks_uri"))


def public_keys(document: Mapping[str, Any]) -> Mapping[str | None, Key]:
    """Keys for signatures in a JWK set, by id. Secret, weak and unknown ones are left out."""
    found: dict[str | None, Key] = {}
    listed = document.get("keys")
    for each in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") not in {"RSA", "EC", "OKP"}:
            continue
        with suppress(JoseError, ValueError, TypeError, KeyError), catch_warnings():
            simplefilter("ignore", SecurityWarning)  # weak keys are left out below
            key = JWKRegistry.import_key({name: each[name] for name in _PUBLIC if name in each})
            if isinstance(key, ECKey | OKPKey) or (isinstance(key, RSAKey) and _bits(key) >= _RSA_BITS):
                id = each.get("kid")
                found[id if isinstance(id, str) else None] = key
    return found


_PUBLIC: Final = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
"""Members of a key that are read; the secret ones of a careless issuer are not."""


def _bits(key: RSAKey) -> int:
    return key.public_key.key_size


def _trusting(issuer: Issuer) -> ssl.SSLContext:
    """TLS context that trusts the certificates in `ca_file` alone; `InvalidInput` for a file without any."""
    try:
        return ssl.create_default_context(cafile=issuer.ca_file)
    except OSError as error:  # an SSLError is one
        raise InvalidInput(f"Issuer {issuer.url}: no certificates in ca_file {issuer.ca_file}: {error}") from error

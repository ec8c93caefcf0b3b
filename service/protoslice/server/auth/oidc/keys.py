"""The public keys of issuers. They are fetched in the background, and kept while an issuer is unreachable."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn
from urllib.parse import quote_plus, urlencode, urlsplit
from warnings import catch_warnings, simplefilter

import httpcore
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey

from protoslice.concurrency.results import SingleFlight
from protoslice.errors import InvalidInput, ProtosliceError, StorageDenied, StorageUnavailable
from protoslice.server.auth.oidc.issuers import Issuer
from protoslice.storage.web_guard import Networks, guarded_pool

REFRESH_SECONDS: Final = 900.0
"""The age in seconds at which keys are fetched again. A key that the issuer has withdrawn is then refused."""
AGAIN_SECONDS: Final = 30.0
"""The minimum time between two fetches, in seconds, even if many unknown key ids arrive or the issuer keeps failing."""
_PATIENCE: Final = 3.0
"""The maximum number of seconds that a request waits for a fetch."""
_MOST_KEYS: Final = 64
_RSA_BITS: Final = 2048
_PUBLIC: Final = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
"""The members of a key that are read. Secret members, which an issuer may publish by mistake, are ignored."""
_LARGEST: Final = 256 << 10
_SECONDS: Final = 10.0
_TIMEOUTS: Final = {"timeout": {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}}
_FAILURES: Final = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.UnsupportedProtocol, OSError,
    TimeoutError, ValueError,
)  # fmt: skip

_log = logging.getLogger(__name__)


class IssuerKeys:
    """The public keys of one issuer, keyed by key id."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        tls = None if issuer.ca_file is None else _trusting(issuer)
        self.client = IssuerClient(issuer.networks, tls)
        self._keys: Mapping[str | None, Key] = {}
        self._tried = -math.inf
        self._fetching: SingleFlight[None, None] = SingleFlight()

    async def find(self, id: str | None) -> Key | None:
        """Return the key with an id. If `id` is None, return the issuer's only key.

        For an unknown id, fetch the keys first. The rate of these fetches is limited.
        """
        found = self._known(id)
        if found is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._fetching.get(None, self._refresh), _PATIENCE)
            found = self._known(id)
        return found

    async def keep_fresh(self) -> None:
        """Fetch the keys now, and repeatedly until cancelled."""
        while True:
            await self._fetching.get(None, self._refresh)
            await asyncio.sleep(REFRESH_SECONDS if self._keys else AGAIN_SECONDS)

    async def close(self) -> None:
        """Wait for a running fetch, and close the connections."""
        await self._fetching.idle()
        await self.client.close()

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
                raise StorageUnavailable("the issuer publishes no usable key")
            self._keys = keys
        except (ProtosliceError, OSError) as error:
            # The service continues to work when an issuer fails. Callers whose JWTs are signed with a known key remain
            # accepted.
            _log.warning("could not refresh the keys of issuer %s, keeping the old ones: %s", self._issuer.url, error)

    async def _document(self) -> Mapping[str, Any]:
        issuer = self._issuer
        if issuer.keys_file is not None:
            return parse_object(await asyncio.to_thread(issuer.keys_file.read_bytes))
        said = await self.client.configuration(issuer.url)
        return await self.client.get(endpoint(said, "jwks_uri"))


def public_keys(document: Mapping[str, Any]) -> Mapping[str | None, Key]:
    """Return the signature keys in a JWK set, keyed by id. Secret, weak and unknown keys are left out."""
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


def _bits(key: RSAKey) -> int:
    return key.public_key.key_size


def _trusting(issuer: Issuer) -> ssl.SSLContext:
    """Return a TLS context that trusts only the certificates in `ca_file`.

    Raise `InvalidInput` if the file has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=issuer.ca_file)
    except OSError as error:  # SSLError is a subclass
        raise InvalidInput(f"Issuer {issuer.url}: no certificates in ca_file {issuer.ca_file}: {error}") from error


class IssuerClient:
    """An HTTP client for an issuer's small JSON documents. It connects to public addresses and to `networks`.

    It follows no redirects.
    """

    def __init__(self, networks: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self._pool = guarded_pool(Networks(*networks), tls)

    async def get(self, url: str) -> Mapping[str, Any]:
        """Return the JSON object at `url`. Raise `StorageUnavailable` or `StorageDenied` if it cannot be read."""
        return await self._ask("GET", url)

    async def post(self, url: str, form: Mapping[str, str], login: tuple[str, str] | None = None) -> Mapping[str, Any]:
        """Post a form and return the JSON object in the response. `login` is a client id and its secret.

        Raise the same errors as `get`.
        """
        more = [] if login is None else [("Authorization", _basic(*login))]
        return await self._ask("POST", url, urlencode(form).encode(), more)

    async def configuration(self, issuer: str) -> Mapping[str, Any]:
        """Return the configuration that `issuer` publishes.

        Raise `StorageDenied` if the configuration names another issuer.
        """
        said = await self.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise StorageDenied("the issuer publishes the configuration of another issuer")
        return said

    async def _ask(
        self, method: str, url: str, form: bytes | None = None, more: Sequence[tuple[str, str]] = ()
    ) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(_SECONDS):
                return parse_object(await self._body(method, url, form, more))
        except _FAILURES as error:
            raise StorageUnavailable(f"{url} could not be read ({type(error).__name__})") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _body(self, method: str, url: str, form: bytes | None, more: Sequence[tuple[str, str]]) -> bytes:
        headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), *more]
        if form is not None:
            headers.append(("Content-Type", "application/x-www-form-urlencoded"))
        async with self._pool.stream(method, url, headers=headers, content=form, extensions=_TIMEOUTS) as answer:
            if answer.status != 200:
                # Redirects are refused. A document has one address, which the operator can put into the settings.
                raise StorageUnavailable(f"{url} responded with {answer.status}")
            body = bytearray()
            async for piece in answer.aiter_stream():
                body += piece
                if len(body) > _LARGEST:
                    raise StorageDenied(f"{url} is larger than {_LARGEST} bytes")
        return bytes(body)


def _basic(client: str, secret: str) -> str:
    """Return the `Authorization` value of an OAuth client. Id and secret are encoded as in forms."""
    return "Basic " + b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()


def endpoint(configuration: Mapping[str, Any], name: str) -> str:
    """Return an address from an issuer's configuration.

    Raise `StorageDenied` if the address is missing, or if it lacks https although the issuer's URL has https.
    """
    place, issuer = configuration.get(name), str(configuration.get("issuer"))
    if not isinstance(place, str) or (urlsplit(issuer).scheme == "https" and not place.startswith("https:")):
        raise StorageDenied(f"the configuration of the issuer has no `{name}`, or one without https")
    return place


def parse_object(text: bytes) -> Mapping[str, Any]:
    """Return the JSON object in `text`. Raise `StorageDenied` for anything else, including NaN and infinities."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise StorageDenied("the text is not JSON") from None
    if not isinstance(found, dict):
        raise StorageDenied("the text is not a JSON object")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)

"""Small JSON documents of issuers, fetched within the address policy, and without redirects."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import quote_plus, urlencode, urlsplit

import httpcore

from protoslice.errors import StorageDenied, StorageUnavailable
from protoslice.storage.web_guard import Networks, guarded_pool

_LARGEST: Final = 256 << 10
_SECONDS: Final = 10.0
_TIMEOUTS: Final = {"timeout": {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}}
_FAILURES: Final = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.UnsupportedProtocol, OSError,
    TimeoutError, ValueError,
)  # fmt: skip


class Documents:
    """Documents at public addresses, and in `networks`."""

    def __init__(self, networks: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self._pool = guarded_pool(Networks(*networks), tls)

    async def get(self, url: str) -> Mapping[str, Any]:
        """The JSON object at `url`; `StorageUnavailable` or `StorageDenied` without one."""
        return await self._ask("GET", url)

    async def post(self, url: str, form: Mapping[str, str], login: tuple[str, str] | None = None) -> Mapping[str, Any]:
        """The JSON object that `url` answers a form with, sent by a client with its secret; see `get`."""
        more = [] if login is None else [("Authorization", _basic(*login))]
        return await self._ask("POST", url, urlencode(form).encode(), more)

    async def configuration(self, issuer: str) -> Mapping[str, Any]:
        """The configuration that `issuer` publishes; `StorageDenied` for that of another issuer."""
        said = await self.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise StorageDenied("it published the configuration of another issuer")
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
                # Redirects are answers like any other: a document has one address, which the operator can write down.
                raise StorageUnavailable(f"{url} responded with {answer.status}")
            body = bytearray()
            async for piece in answer.aiter_stream():
                body += piece
                if len(body) > _LARGEST:
                    raise StorageDenied(f"{url} is larger than {_LARGEST} bytes")
        return bytes(body)


def _basic(client: str, secret: str) -> str:
    """Value of Authorization for a client of OAuth; both parts are encoded as in forms."""
    return "Basic " + b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()


def endpoint(configuration: Mapping[str, Any], name: str) -> str:
    """Address in the configuration of an issuer, as safe as the issuer's; `StorageDenied` without one."""
    place, issuer = configuration.get(name), str(configuration.get("issuer"))
    if not isinstance(place, str) or (urlsplit(issuer).scheme == "https" and not place.startswith("https:")):
        raise StorageDenied(f"its configuration has no `{name}`, or one without https")
    return place


def parse_object(text: bytes) -> Mapping[str, Any]:
    """The JSON object in `text`; `StorageDenied` for anything else, numbers that are none among it."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise StorageDenied("not JSON") from None
    if not isinstance(found, dict):
        raise StorageDenied("not a JSON object")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)

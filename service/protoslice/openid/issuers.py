"""Exchanges with issuers: small JSON answers, within bounds, without redirects."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from protoslice.errors import StorageDenied, StorageUnavailable

_LARGEST: Final = 256 << 10
_SECONDS: Final = 20.0
_SILENCE: Final = 10.0
_LONGEST_URL: Final = 2048
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}
_FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError)


class IssuerEndpoints:
    """An issuer, and the addresses that it publishes."""

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        status, said = exchange(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
        if status != 200 or said.get("issuer") != url:
            raise StorageDenied(f"{url} has no valid OpenID configuration: check the issuer's URL")
        self._said = said

    def endpoint(self, name: str) -> str | None:
        """An address by its name, None without one; `StorageDenied` if less safe than the issuer."""
        place = self._said.get(name)
        if place is None:
            return None
        checked = checked_url(place)
        if checked.startswith("http:") and self.url.startswith("https:"):
            raise StorageDenied(f"The issuer {self.url} lists an address without TLS as its {name}")
        return checked


def exchange(url: str, form: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, Any]]:
    """Status and JSON object in the answer to a form or a GET; `StorageUnavailable` without an answer.

    Other answers than objects are empty ones.
    """
    try:
        return asyncio.run(_exchange(checked_url(url), form))
    except _FAILURES as error:
        raise StorageUnavailable(f"{urlsplit(url).netloc} does not respond ({type(error).__name__})") from None


def checked_url(url: object) -> str:
    """`url`, of https or of this machine; `StorageDenied` for any other."""
    if isinstance(url, str) and len(url) <= _LONGEST_URL and url.isascii() and url.isprintable() and " " not in url:
        try:
            parts = urlsplit(url)
            host, secure = parts.hostname, parts.scheme == "https" or _is_loopback(parts.hostname or "")
            if parts.scheme in {"http", "https"} and host and secure and "@" not in parts.netloc and "\\" not in url:
                return url
        except ValueError:
            pass
    raise StorageDenied("The issuer must use https (http is only allowed on this machine)")


async def _exchange(url: str, form: Mapping[str, str] | None) -> tuple[int, Mapping[str, Any]]:
    body = bytearray()
    # The time is that of the whole exchange: an issuer may also send a byte now and then.
    async with (
        asyncio.timeout(_SECONDS),
        httpx.AsyncClient(verify=_tls(), timeout=_SILENCE, headers=_HEADERS) as http,
        http.stream("GET" if form is None else "POST", url, data=form) as answer,
    ):
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > _LARGEST:
                raise StorageDenied(f"The response of {urlsplit(url).netloc} is larger than {_LARGEST} bytes")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    return answer.status_code, said if isinstance(said, dict) else {}


@cache
def _tls() -> ssl.SSLContext:
    """The certificates of this machine, read once."""
    return ssl.create_default_context()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

"""Small JSON documents of issuers, fetched within the address policy, and without redirects."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import httpcore

from protoslice.errors import StorageDenied, StorageUnavailable
from protoslice.storage.web.address_policy import Networks
from protoslice.storage.web.connections import guarded_pool

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
        try:
            async with asyncio.timeout(_SECONDS):
                return parse_object(await self._body(url))
        except _FAILURES as error:
            raise StorageUnavailable(f"{url} gave no document ({type(error).__name__})") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _body(self, url: str) -> bytes:
        headers = [("Accept", "application/json"), ("Accept-Encoding", "identity")]
        async with self._pool.stream("GET", url, headers=headers, extensions=_TIMEOUTS) as answer:
            if answer.status != 200:
                # Redirects are answers like any other: a document has one address, which the operator can write down.
                raise StorageUnavailable(f"{url} answered {answer.status}")
            body = bytearray()
            async for piece in answer.aiter_stream():
                body += piece
                if len(body) > _LARGEST:
                    raise StorageDenied(f"{url} is longer than {_LARGEST} bytes")
        return bytes(body)


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

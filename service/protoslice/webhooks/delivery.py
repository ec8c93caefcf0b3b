"""Delivery of one event: a POST in the form of CloudEvents, signed as Standard Webhooks has it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import httpcore

from protoslice.catalog.letters import Letter
from protoslice.catalog.webhooks import Webhook
from protoslice.errors import StorageDenied, StorageUnavailable
from protoslice.storage.prefixes import check_allowed
from protoslice.storage.sources import check_prefixes
from protoslice.storage.web.address_policy import Networks
from protoslice.storage.web.connections import guarded_pool

DELIVERY_SECONDS: Final = 10.0
_TIMEOUTS: Final = {"timeout": {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 10.0}}
_FAILURES: Final = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.UnsupportedProtocol, OSError,
    TimeoutError, ValueError, StorageDenied, StorageUnavailable,
)  # fmt: skip
_GONE: Final = 410


class Refused(Exception):
    """Event that its receiver did not take; `final` when there is no use in trying again."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Delivery:
    """POSTs to URLs below the operator's prefixes, at permitted addresses; no redirect is followed."""

    def __init__(self, prefixes: Sequence[str], networks: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        check_prefixes(prefixes)
        self._prefixes = tuple(prefixes)
        self._pool = guarded_pool(Networks(*networks), tls)

    def check(self, url: str) -> None:
        """Raise `StorageDenied` or `InvalidInput` unless a URL is an allowed prefix or below one."""
        check_allowed(url, self._prefixes)

    async def send(self, hook: Webhook, letter: Letter) -> None:
        """POST an event; `Refused` unless the receiver answers 2xx within `DELIVERY_SECONDS`."""
        body = json.dumps(letter.event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
        try:
            self.check(hook.url)  # anew: the operator may have taken a prefix away
            async with asyncio.timeout(DELIVERY_SECONDS):
                headers = _headers(hook, letter.id, body)
                # Only the status counts: the body of the answer is not read.
                async with self._pool.stream(
                    "POST", hook.url, headers=headers, content=body, extensions=_TIMEOUTS
                ) as answer:
                    status = answer.status
        except _FAILURES as error:
            raise Refused(f"no response ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise Refused(f"status {status}", final=status == _GONE)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def signature(secret: bytes, id: str, timestamp: str, body: bytes) -> str:
    """Signature of a POST: HMAC-SHA-256 over id, time and body, with dots between them."""
    mac = hmac.new(secret, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + b64encode(mac.digest()).decode()


def _headers(hook: Webhook, id: str, body: bytes) -> list[tuple[str, str]]:
    timestamp = str(int(time.time()))
    return [
        ("Content-Type", "application/cloudevents+json; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("User-Agent", "protoslice-webhooks"),
        ("webhook-id", id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", signature(hook.secret, id, timestamp, body)),
    ]

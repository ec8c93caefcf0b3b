"""Deletes on condition of an entity tag (`If-Match`), which obstore does not make: it signs them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import httpcore
import obstore
from obstore.store import AzureStore, S3Store

from protoslice.errors import Conflict, ProtosliceError, StorageDenied, StorageUnavailable
from protoslice.storage.cloud.errors import explained
from protoslice.storage.keys import ObjectKey

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SECONDS: Final = 15.0
_CONNECTIONS: Final = 16
_ROUTES: Final = frozenset({"allow_invalid_certificates", "proxy_ca_certificate", "proxy_url", "root_certificate"})
"""Options of obstore's connections without a counterpart here."""
_CHANGED: Final = frozenset({404, 409, 412})
_CODE: Final = re.compile(rb"<Code>([A-Za-z]{1,60})</Code>")


class ConditionalDeletes:
    """Deletes in one bucket on condition, by URLs that obstore signs with whatever credentials it has."""

    def __init__(self, store: S3Store | AzureStore) -> None:
        self._store = store
        self._pool: httpcore.AsyncConnectionPool | None = None

    @classmethod
    def of(cls, store: ObjectStore, connection: Mapping[str, str]) -> ConditionalDeletes | None:
        """Deletes in the bucket of a store; None for a cloud or connections that are unknown here."""
        if isinstance(store, S3Store | AzureStore) and not _ROUTES & connection.keys():
            return cls(store)
        return None

    async def delete(self, key: ObjectKey, etag: str) -> None:
        """Delete an object whose entity tag is `etag`; `Conflict` for another, and in most buckets for none.

        One attempt: of several, a later one would be told that the object is not there.
        """
        doing = f"cannot delete {str(key)!r}"
        with explained("delete", key):
            url = await obstore.sign_async(self._store, "DELETE", key.text, timedelta(minutes=5))
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(max_connections=_CONNECTIONS)
        try:
            async with asyncio.timeout(_SECONDS):
                answer = await self._pool.request("DELETE", url, headers=[("if-match", etag)])
        except (TimeoutError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError):
            raise StorageUnavailable(f"{doing}: the storage did not respond in time") from None
        if answer.status in _CHANGED:
            raise Conflict(f"{doing}: it has changed or was removed")
        if answer.status >= 300:
            raise _refused(doing, answer.status, answer.content)

    async def close(self) -> None:
        """Release connections; harmless when repeated."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()


def _refused(doing: str, status: int, body: bytes) -> ProtosliceError:
    code = _CODE.search(body)
    reason = f"{status} ({code[1].decode()})" if code else str(status)
    kind = StorageDenied if status in {401, 403} else StorageUnavailable
    return kind(f"{doing}: the storage responded with {reason}")

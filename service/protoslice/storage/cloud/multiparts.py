"""Multipart uploads that dead writers left in a bucket of S3: listed and ended, which obstore cannot."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import httpcore

from protoslice.errors import ProtosliceError, StorageDenied, StorageUnavailable
from protoslice.storage.cloud.signing import Keys, option, signed

_ANSWER_BYTES: Final = 4 << 20
"""Most bytes of an answer: a thousand uploads or parts take less than half of it."""
_SECONDS: Final = 15.0
_UNLIKE: Final = frozenset({"skip_signature", "s3_express"})
_ROUTES: Final = frozenset({"allow_invalid_certificates", "proxy_ca_certificate", "proxy_url", "root_certificate"})
"""Options of obstore's connections without a counterpart here."""
_CODE: Final = re.compile(rb"<Code>([A-Za-z]{1,60})</Code>")


@dataclass(frozen=True, slots=True)
class _Left:
    """Multipart upload that has not ended."""

    key: str
    id: str
    begun: datetime


class Multiparts:
    """Multipart uploads below a folder of a bucket, by requests of our own."""

    def __init__(self, bucket_url: str, folder: str, keys: Keys) -> None:
        """Uploads in the bucket at `bucket_url`, below `folder`, which is empty for the whole bucket."""
        self._url = bucket_url
        self._prefix = f"{folder}/" if folder else ""
        self._keys = keys

    @classmethod
    def of(
        cls, bucket: str, folder: str, options: Mapping[str, str], connection: Mapping[str, str]
    ) -> Multiparts | None:
        """Uploads of a bucket by options of its store and connections; None where no request can be made.

        Roles of a machine are known to obstore alone, and so are proxies and certificates.
        """
        keys = Keys.of(options)
        if keys is None or _ROUTES & connection.keys() or any(option(options, name) for name in _UNLIKE):
            return None
        endpoint = option(options, "endpoint", "endpoint_url", "endpoint_url_s3")
        if option(options, "virtual_hosted_style_request").lower() in {"true", "1"}:
            url = endpoint or f"https://{bucket}.s3.{keys.region}.amazonaws.com"
        else:
            url = f"{(endpoint or f'https://s3.{keys.region}.amazonaws.com').rstrip('/')}/{bucket}"
        return cls(url.rstrip("/"), folder, keys)

    async def end(self, *, before: datetime, spared: Container[str]) -> int:
        """End the uploads whose last part came before a moment; the number of them.

        `spared` are keys below the folder whose writers are at work in this process. Raises `StorageDenied` and
        `StorageUnavailable`.
        """
        ended = 0
        async with httpcore.AsyncConnectionPool() as pool:
            async for left in self._all(pool):
                if left.begun >= before or left.key.removeprefix(self._prefix) in spared:
                    continue
                if await self._last_part(pool, left) < before:
                    await self._ask(pool, "DELETE", left.key, {"uploadId": left.id})
                    ended += 1
        return ended

    async def _all(self, pool: httpcore.AsyncConnectionPool) -> AsyncIterator[_Left]:
        async for page in self._pages(
            pool,
            "",
            {"uploads": "", "prefix": self._prefix},
            {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"},
        ):
            for found in page.findall("{*}Upload"):
                yield _Left(_text(found, "Key"), _text(found, "UploadId"), _moment(found, "Initiated"))

    async def _last_part(self, pool: httpcore.AsyncConnectionPool, left: _Left) -> datetime:
        """Moment at which the newest part of an upload came; its beginning while there is none."""
        moments = [left.begun]
        async for page in self._pages(
            pool, left.key, {"uploadId": left.id}, {"part-number-marker": "NextPartNumberMarker"}
        ):
            moments += [_moment(part, "LastModified") for part in page.findall("{*}Part")]
        return max(moments)

    async def _pages(
        self, pool: httpcore.AsyncConnectionPool, key: str, query: Mapping[str, str], markers: Mapping[str, str]
    ) -> AsyncIterator[Element]:
        """Pages of a listing; `markers` are the parameters that begin a page, each with its name in an answer."""
        begin: dict[str, str] = {}
        while True:
            page = _parsed(await self._ask(pool, "GET", key, {**query, **begin}))
            yield page
            following = {name: _text(page, tag) for name, tag in markers.items()}
            if _text(page, "IsTruncated") != "true" or following == begin:
                return
            begin = following

    async def _ask(self, pool: httpcore.AsyncConnectionPool, method: str, key: str, query: Mapping[str, str]) -> bytes:
        """Body of the answer to one request; empty when there is no such upload any more."""
        url, headers = signed(method, self._url, key, query, self._keys, datetime.now(UTC))
        try:
            async with asyncio.timeout(_SECONDS), pool.stream(method, url, headers=[*headers.items()]) as answer:
                body = b""
                async for piece in answer.aiter_stream():
                    body += piece
                    if len(body) > _ANSWER_BYTES:
                        raise StorageUnavailable("cannot list multipart uploads: the response is too long")
        except (TimeoutError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError):
            raise StorageUnavailable("cannot list multipart uploads: the storage did not respond in time") from None
        if answer.status == 404 and key:
            return b""
        if answer.status >= 300:
            raise _refused(answer.status, body)
        return body


def _refused(status: int, body: bytes) -> ProtosliceError:
    code = _CODE.search(body)
    reason = f"{status} ({code[1].decode()})" if code else str(status)
    kind = StorageDenied if status in {401, 403} else StorageUnavailable
    return kind(f"cannot list or end multipart uploads: the storage responded with {reason}")


def _parsed(body: bytes) -> Element:
    if not body:
        return Element("none")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise StorageUnavailable("cannot list multipart uploads: the response is not XML") from None


def _text(element: Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""


def _moment(element: Element, name: str) -> datetime:
    """Time in an answer; the last of all times when there is none, which is never before another."""
    try:
        found = datetime.fromisoformat(_text(element, name))
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)

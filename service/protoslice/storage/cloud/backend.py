"""`s3://`, `gs://` and `az://`: objects of a bucket, by obstore."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.store import from_url

from protoslice.concurrency.pipeline import one_ahead
from protoslice.errors import (
    InvalidInput,
    NotFound,
    StorageDenied,
    StorageUnavailable,
)
from protoslice.storage.cloud.errors import explained
from protoslice.storage.cloud.options import sort_options, spared
from protoslice.storage.cloud.writer import CloudWriter
from protoslice.storage.interface import PAGE, Abilities, Buffer, ObjectContent, ObjectStat, Page, Writer
from protoslice.storage.keys import ObjectKey
from protoslice.storage.remote import RemoteStorage
from protoslice.storage.spans import check_inside, check_limit, check_span

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

ABILITIES: Final = Abilities()
PART_BYTES: Final = 16 << 20
UPLOADS: Final = 3
TRIES: Final = 2
"""Requests without a byte after which a stream is given up; obstore tries each of them again too."""
READ_SECONDS: Final = 15.0
"""Deadline in seconds of a look, a read of a range or a page of a listing, with all retries of it."""
STREAMED: Final = 2 << 20
"""Least bytes of a piece of a stream, but the last; half of it costs a tenth more processor time."""
LISTED: Final = 1000
"""Objects that a bucket lists in one answer."""

# One request moves 16 MiB at most, so a minute is generous; a stalled request is given up and retried.
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=20),
    "timeout": timedelta(seconds=60),
}
_ENDPOINTS: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_")
_WEAKENING: Final = ("allow_http", "allow_invalid_certificates")
"""Options of connections with which TLS does not guard what is sent."""
_RETRY: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=45),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


class CloudStorage(RemoteStorage):
    """Storage of the objects of a bucket, or of a folder in one."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        part_bytes: int = PART_BYTES,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._store = store
        self._read_seconds = read_seconds
        self.part_bytes = part_bytes

    @classmethod
    def from_uri(
        cls,
        uri: str,
        options: Mapping[str, str],
        *,
        read_seconds: float = READ_SECONDS,
    ) -> CloudStorage:
        """Open the storage at `uri`, with `options` and obstore's environment variables for the scheme.

        Plain HTTP needs an endpoint that begins with `http://` or the option `allow_http`. `InvalidInput` when obstore
        rejects the URI or an option.
        """
        scheme = uri.partition("://")[0].lower()
        config, connection = sort_options(scheme, options)
        client: dict[str, Any] = {**_CLIENT}
        endpoints = [*options.values(), *(os.environ.get(name, "") for name in _ENDPOINTS)]
        if any(value.startswith("http://") for value in endpoints):
            client["allow_http"] = True
        client |= connection
        config = spared(scheme, config, encrypted=client.keys().isdisjoint(_WEAKENING))
        try:
            store = from_url(uri, config=_any(config), client_options=_any(client), retry_config=_RETRY)
        except Exception as error:
            raise InvalidInput(f"Invalid storage URI or options: {_reason(error, options)}") from None
        return cls(store, read_seconds=read_seconds)

    @property
    def abilities(self) -> Abilities:
        """All but `open_file` and `free_bytes`."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        with explained("find", key):
            async with asyncio.timeout(self._read_seconds):
                return _describe(key, await obstore.head_async(self._store, key.text))

    async def get(self, key: ObjectKey) -> ObjectContent:
        with explained("read", key):
            async with asyncio.timeout(self._read_seconds):
                answer = await obstore.get_async(self._store, key.text)
                return ObjectContent(_describe(key, answer.meta), bytes(await answer.bytes_async()))

    async def _found(self, key: ObjectKey, etag: str | None) -> ObjectStat | None:
        """`pin` of an object that could not be read; None when that fails as well.

        The failure of the read says more: answers to HEAD have no code, and a missing bucket looks as a missing object.
        """
        with suppress(StorageUnavailable, StorageDenied, NotFound):
            return await self.pin(key, etag)
        return None

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        with explained("read", key):
            async with asyncio.timeout(self._read_seconds):
                return await self._get_range(key, start, end, if_etag)

    async def _get_range(self, key: ObjectKey, start: int, end: int, if_etag: str | None) -> bytes:
        check_span(start, end)
        if start == end:
            check_inside(key, end, (await self.pin(key, if_etag)).size)
            return b""
        options: GetOptions = {"range": (start, end)}
        if if_etag is not None:
            options["if_match"] = if_etag
        try:
            with explained("read", key):
                answer = await obstore.get_async(self._store, key.text, options=options)
                _describe(key, answer.meta).check_etag(if_etag)
                data = bytes(await answer.bytes_async())
        except StorageUnavailable:
            # obstore reports a range behind the end as any other failure; the size tells the two apart.
            if (found := await self._found(key, if_etag)) is not None:
                check_inside(key, end, found.size)
            raise
        check_inside(key, end, start + len(data))
        return data

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        """See `Storage.stream`: one request, and another from where it was for each that breaks off."""
        if end is None:
            end = max(start, (await self.pin(key, if_etag)).size)
        check_span(start, end)
        if start == end:
            check_inside(key, end, (await self.pin(key, if_etag)).size)
        at, tries, clock = start, TRIES, asyncio.get_running_loop().time
        deadline = clock() + self._read_seconds
        while at < end:
            before = at
            try:
                with explained("read", key):
                    options: GetOptions = (
                        {"range": (at, end)} if if_etag is None else {"range": (at, end), "if_match": if_etag}
                    )
                    async with asyncio.timeout_at(deadline):
                        answer = await obstore.get_async(self._store, key.text, options=options)
                found = _describe(key, answer.meta)
                found.check_etag(if_etag)
                check_inside(key, end, found.size)
                if_etag = found.etag
                async with aclosing(one_ahead(answer.stream(min_chunk_size=STREAMED))) as body:
                    while True:
                        with explained("read", key):
                            async with asyncio.timeout_at(deadline):
                                piece = await anext(body, None)
                        if piece is None:
                            break
                        at += len(piece)
                        yield memoryview(piece)
                        deadline = clock() + self._read_seconds  # the time that the reader took is its own
                if at < end:
                    raise StorageUnavailable(f"cannot read {str(key)!r}: the response ended at byte {at} of {end}")
            except StorageUnavailable:
                tries = TRIES if at > before else tries - 1
                if not tries or clock() >= deadline:
                    # obstore reports a range behind the end as any other failure.
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(deadline):
                            if (seen := await self._found(key, if_etag)) is not None:
                                check_inside(key, end, seen.size)
                    raise

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        with explained("write", key, missing=StorageUnavailable):
            result = await obstore.put_async(self._store, key.text, bytes(data), use_multipart=False)
        return _tag(result["e_tag"])

    async def put_parts(self, key: ObjectKey, parts: AsyncIterator[Buffer]) -> str:
        """See `writer.Target.put_parts`."""
        with explained("write", key, missing=StorageUnavailable):
            result = await obstore.put_async(
                self._store,
                key.text,
                parts,
                use_multipart=True,
                chunk_size=self.part_bytes,
                max_concurrency=UPLOADS,
            )
        return _tag(result["e_tag"])

    async def writer(self, key: ObjectKey) -> Writer:
        return CloudWriter(self, key)

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        check_limit(limit)
        items: list[ObjectStat] = []
        with explained("list", prefix or "everything", missing=StorageUnavailable):
            pages = obstore.list(
                self._store,
                None if prefix is None else prefix.text,
                offset=None if after is None else after.text,
                chunk_size=min(limit + 1, LISTED),
            )
            async with asyncio.timeout(self._read_seconds):
                async for page in pages:
                    # Azure's emulator ignores the offset and lists from the start.
                    items += [item for item in _ours(page) if after is None or item.key > after]
                    if len(items) > limit:
                        return Page(tuple(items[:limit]), items[limit - 1].key)
        return Page(tuple(items), None)

    async def delete(self, key: ObjectKey) -> None:
        with suppress(NotFound), explained("delete", key):
            await obstore.delete_async(self._store, key.text)


def _ours(page: Iterable[ObjectMeta]) -> Iterator[ObjectStat]:
    """Objects of a page, without those whose names are no valid keys."""
    for found in page:
        with suppress(InvalidInput):
            yield _describe(ObjectKey(found["path"]), found)


def _describe(key: ObjectKey, meta: ObjectMeta) -> ObjectStat:
    return ObjectStat(key, meta["size"], _tag(meta["e_tag"]), meta["last_modified"])


def _tag(etag: str | None) -> str:
    if not etag:
        raise StorageUnavailable("this storage has no entity tags, which are needed to read safely")
    # Azure's listings leave out the quotes that its answers have.
    return etag if etag.endswith('"') else f'"{etag}"'


def _reason(error: Exception, options: Mapping[str, str]) -> str:
    """First line of obstore's error, or the error's class when the line repeats a possible secret."""
    told = str(error).partition("\n")[0]
    values = [*options.values(), *(value for name, value in os.environ.items() if name.startswith(_PREFIXES))]
    return type(error).__name__ if any(value and value in told for value in values) else told


def _any(options: dict[str, Any]) -> Any:
    """Cast of validated options: their names depend on the scheme, which the type checker cannot know."""
    return options

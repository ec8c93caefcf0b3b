"""A bucket under a separate URI scheme that counts its requests and their bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from protoslice.storage import Buffer, MemoryStorage, ObjectKey, ObjectStat, Page, PrefixStorage, Storage, Writer
from protoslice.storage import registry as backends
from protoslice.storage.interface import PAGE, Abilities
from protoslice.storage.ranges import RemoteStorage
from protoslice.uris import parse_root


class CountedBucket(RemoteStorage):
    """A bucket in memory that is read with the same requests as a remote one."""

    def __init__(self) -> None:
        self.uri = f"counted-{token_hex(4)}://bucket"
        self.requests: list[tuple[str, int]] = []
        """The method and the bytes of each request."""
        self.options: list[Mapping[str, str]] = []
        """The options of each opening."""
        self.closed = 0
        self.objects = MemoryStorage()

    @property
    def scheme(self) -> str:
        """The scheme, which only this bucket has."""
        return self.uri.partition(":")[0]

    @property
    def bytes_read(self) -> int:
        """The bytes of all requests."""
        return sum(size for _, size in self.requests)

    def opened(self, uri: str, options: Mapping[str, str]) -> Storage:
        """Return the bucket; this is the factory of the scheme."""
        self.options.append(options)
        place = parse_root(uri)
        return PrefixStorage(self, ObjectKey("/".join(place.segments))) if place.segments else self

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Put objects by key."""
        for key, data in files.items():
            asyncio.run(self.objects.put(ObjectKey(key), data))

    def fill_from(self, folder: Path, below: str) -> None:
        """Put the files of a directory below a key."""
        self.fill(
            {f"{below}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        )

    @property
    def abilities(self) -> Abilities:
        """See `Storage.abilities`."""
        return replace(self.objects.abilities, shared=True)

    async def stat(self, key: ObjectKey) -> ObjectStat:
        """See `Storage.stat`."""
        self.requests.append(("stat", 0))
        return await self.objects.stat(key)

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """See `Storage.get_range`."""
        self.requests.append(("get", end - start))
        return await self.objects.get_range(key, start, end, if_etag=if_etag)

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        """See `Storage.list`."""
        self.requests.append(("list", 0))
        return await self.objects.list(prefix, after=after, limit=limit)

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """See `Storage.put`."""
        self.requests.append(("put", len(data)))
        return await self.objects.put(key, data)

    async def writer(self, key: ObjectKey) -> Writer:
        """See `Storage.writer`."""
        self.requests.append(("write", 0))
        return await self.objects.writer(key)

    async def delete(self, key: ObjectKey) -> None:
        """See `Storage.delete`."""
        self.requests.append(("delete", 0))
        await self.objects.delete(key)

    async def close(self) -> None:
        """See `Storage.close`."""
        self.closed += 1


@contextmanager
def counted_bucket() -> Iterator[CountedBucket]:
    """Yield a bucket whose scheme is registered until the block ends."""
    bucket = CountedBucket()
    backends.register(bucket.scheme, bucket.opened)
    try:
        yield bucket
    finally:
        backends.unregister(bucket.scheme)

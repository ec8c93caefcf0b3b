"""Stores put straight into a storage or a folder, and a storage that counts its calls."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import Indexes
from protoslice.stores.layout.references import references_of

from protoslice.facts import File
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.storage.interface import Buffer
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.manifest import Manifest, ObjectLocation

T = TypeVar("T")


class Counting(InterceptedStorage):
    """Counts calls, by their methods and the folders of their keys."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.calls: Counter[tuple[str, str]] = Counter()

    @property
    def requests(self) -> int:
        """Calls that are a request of a bucket: writers of small objects make one, when they commit."""
        return sum(count for (name, _), count in self.calls.items() if name not in {"writer", "write", "abort"})

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        self.calls[name, key.segments[0] if key is not None else ""] += 1
        return await call()


class PlainFiles(MemoryStorage):
    """Folder into which small records are put as plain files, without the care of a storage."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    async def put(self, key: ObjectKey, data: Buffer, *, if_etag: str | None = None) -> str:
        path = f"{self._folder}/{key.text}"
        try:
            file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed below, and a hundred thousand times
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = open(path, "wb", buffering=0)  # noqa: SIM115
        with file:
            file.write(data)
            # Versity's gateway gives no other entity tags than those that it finds here.
            os.setxattr(file.fileno(), "user.etag", f'"{secrets.token_hex(16)}"'.encode())
        return ""

    async def put_if_absent(self, key: ObjectKey, data: Buffer) -> str:
        return await self.put(key, data)


async def seed(storage: Storage, count: int, like: Manifest | None = None, *, first: int = 0) -> None:
    """Put stores with a tag each straight into a storage, their small records as an upload leaves them.

    Numbered from `first`; copies of the store `like`, whose manifest holds its files, or else stores that nobody opens.
    """
    created = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(first, first + count):
        attempt = f"{1_700_000_000 + number:010x}-{number:020x}"
        manifest = replace(
            like or _closed(attempt),
            id=seeded_id(number),
            created=created + timedelta(seconds=number),
            attempt=attempt,
            tags=(f"t{number}",),
        )
        for key in (*sorted(manifest.keys), f"objects/{attempt}/claim"):
            await storage.put(ObjectKey(key), b"alive")
        await Indexes(storage).add(manifest, references_of(manifest))
        await storage.put(keys.store(manifest.id), manifest.encode())
        await Tags(storage).put(f"t{number}", manifest, if_match=None, if_none_match=False)


def seeded_id(number: int) -> str:
    """Id of the store with that number; its tag is `t` and the number."""
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}{number:048x}"


def _closed(attempt: str) -> Manifest:
    """Manifest of a store whose file is told of, and is not there."""
    return Manifest(
        id="", type="seeded.Model", root="a", chunks=0, min_chunk=1, max_chunk=2, source="",
        created=datetime(2026, 1, 1, tzinfo=UTC), attempt=attempt, files=(File("a", 3, "0" * 64),), indexed=False,
        objects=(ObjectLocation(3, key=f"objects/{attempt}/file-0", sums=bytes(4)),),
    )  # fmt: skip

"""Stores put straight into a storage, and a storage that counts its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from protoslice.facts import File
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import Indexes
from protoslice.stores.layout.references import references_of
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


async def seed(storage: Storage, count: int) -> None:
    """Put stores with a tag each straight into a storage, their small records as an upload leaves them."""
    created = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        attempt = f"{1_700_000_000 + number:010x}-{number:020x}"
        location = ObjectLocation(3, key=f"objects/{attempt}/file-0", sums=bytes(4))
        manifest = Manifest(
            id=f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}{number:048x}", type=None, root=None, chunks=0,
            min_chunk=1, max_chunk=2, created=created + timedelta(seconds=number), source="", attempt=attempt,
            files=(File("a", 3, "0" * 64),), objects=(location,), indexed=False, why="it is none",
        )  # fmt: skip
        for key in (*sorted(manifest.keys), f"objects/{attempt}/claim"):
            await storage.put(ObjectKey(key), b"alive")
        await Indexes(storage).add(manifest, references_of(manifest))
        await storage.put(keys.store(manifest.id), manifest.encode())
        await Tags(storage).put(f"t{number}", manifest.id, if_match=None, if_none_match=False)

"""Stores put straight into a catalogue, and a storage that counts its calls."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from protoslice.catalog.manifest import Manifest, ObjectLocation
from protoslice.catalog.objects import new_id
from protoslice.catalog.repositories import ensure_repository
from protoslice.catalog.spaces import DEFAULT_SPACE, Usage
from protoslice.database import Database
from protoslice.database.transactions import Transaction, microseconds
from protoslice.facts import File
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.wrappers import InterceptedStorage

T = TypeVar("T")

_BATCH = 250


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


async def seed(
    database: Database,
    count: int,
    like: Manifest | None = None,
    *,
    first: int = 0,
    tag: Callable[[int], str] = "t{}".format,
) -> None:
    """Insert stores, numbered from `first`, with a tag each.

    They are copies of the store `like`, whose manifest holds its files, or else stores that are never opened.
    """
    for begin in range(first, first + count, _BATCH):
        numbers = range(begin, min(begin + _BATCH, first + count))
        await database.write(lambda tx: _insert(tx, numbers, like or _CLOSED, tag))  # noqa: B023 - it is awaited at once


def _insert(tx: Transaction, numbers: range, like: Manifest, tag: Callable[[int], str]) -> None:
    ensure_repository(tx, DEFAULT_SPACE, "stores", "", 0)
    size = sum(file.size for file in like.files)
    manifests = [
        replace(like, id=seeded_id(number), created=_BEGINNING + timedelta(seconds=number), row=new_id())
        for number in numbers
    ]
    tx.many(
        """
        INSERT INTO stores (space, id, digest, type, size, held, created, weight, manifest)
        VALUES (:space, :id, :digest, :type, :size, :size, :created, :weight, :manifest)""",
        [
            {
                "space": DEFAULT_SPACE,
                "id": each.row,
                "digest": each.id,
                "type": each.shown_type,
                "size": size,
                "created": microseconds(each.created),
                "weight": each.weight,
                "manifest": each.encode(),
            }
            for each in manifests
        ],
    )
    tx.many(
        """
        INSERT INTO names (space, repository, kind, name, store, version, updated)
        VALUES (:space, 0, 'tag', :name, :store, :version, :now)""",
        [
            {
                "space": DEFAULT_SPACE,
                "name": tag(number),
                "store": seeded_id(number),
                "version": secrets.token_bytes(16),
                "now": tx.now,
            }
            for number in numbers
        ],
    )
    Usage(DEFAULT_SPACE).add(tx, stores=len(numbers), logical_bytes=size * len(numbers))


def seeded_id(number: int) -> str:
    """Return the id of the store with that number."""
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}{number:048x}"


_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_CLOSED = Manifest(
    id="", type="seeded.Model", root="a", chunks=0, min_chunk=1, max_chunk=2, source="", created=_BEGINNING,
    files=(File("a", 3, "0" * 64),), indexed=False, objects=(ObjectLocation(3, held=b"abc"),),
)  # fmt: skip

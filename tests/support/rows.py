"""Rows of stores and objects that are put into a catalogue without a storage, and a storage that counts calls."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from protoslice.catalog.histories import History
from protoslice.catalog.labels import HUB
from protoslice.catalog.manifest import Manifest, ObjectLocation
from protoslice.catalog.objects import ObjectTable, OwnObject, ReservedObject, new_id, new_objects
from protoslice.catalog.repositories import RepositoryTable, ensure_repository
from protoslice.catalog.requests import IngestRequest
from protoslice.catalog.spaces import DEFAULT_SPACE, SpaceTable, Usage
from protoslice.catalog.stores import Published, StoreDraft, StoreTable
from protoslice.catalog.uploads import Upload
from protoslice.database import Database
from protoslice.database.transactions import Transaction, microseconds
from protoslice.facts import File
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.wrappers import InterceptedStorage

SPACE: Final = "team"
ACCOUNT: Final = Usage(SPACE)


async def reserved(database: Database, count: int) -> list[ReservedObject]:
    """Return new objects."""
    objects = new_objects(count)
    await ObjectTable(database).reserve(SPACE, objects)
    return objects


def own(objects: Sequence[ReservedObject], size: int | None = 10) -> list[OwnObject]:
    """Return reserved objects in the form in which a request publishes the objects that it wrote."""
    return [OwnObject(each.id, size) for each in objects]


async def put_store(
    database: Database,
    digest: str,
    *,
    tags: Sequence[str] = (),
    own: Sequence[OwnObject] = (),
    shared: Collection[int] = (),
    replaces: int | None = None,
    size: int = 7,
    **more: Any,
) -> Published:
    """Publish a store in the space `SPACE`."""
    values: dict[str, Any] = {
        "id": new_id(), "digest": digest, "type": None, "size": size, "created": 0, "manifest": b"{}", "weight": 1,
    }  # fmt: skip
    new = StoreDraft(**values | more, own=own, shared=shared)
    return await StoreTable(database, ACCOUNT).publish(new, tags, replaces=replaces)


def an_upload(id: str, **more: Any) -> Upload:
    """Return an open upload of the client `c`, as a row for a table."""
    created = datetime(2026, 1, 1, tzinfo=UTC)
    values = {"path": None, "request": IngestRequest(), "created": created, "expires": created, "client": "c"}
    return Upload(id=id, **values | more)


async def history_of(database: Database, name: str = "ann/m", *, space: str = SPACE) -> History:
    """Return the history of a repository; make the repository if it is missing."""
    table = RepositoryTable(database, Usage(space), HUB)
    row = await table.get(name) or await table.create(name)
    return History(database, Usage(space), row.id, row.name)


async def keys(database: Database) -> set[str]:
    """Return the keys of the objects that have rows."""
    return {key for (key,) in await database.read(lambda tx: tx.all("SELECT key FROM objects"))}


async def held(database: Database) -> tuple[int, int, int]:
    """Return the usage of the space `SPACE`: stored bytes, stores, and bytes of their files."""
    await SpaceTable(database).create(SPACE)
    row = await SpaceTable(database).get(SPACE)
    return row.held.stored_bytes, row.held.stores, row.held.logical_bytes


T = TypeVar("T")

_BATCH = 250


class Counting(InterceptedStorage):
    """A storage that counts its calls by method and by the folder of the key."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.calls: Counter[tuple[str, str]] = Counter()

    @property
    def requests(self) -> int:
        """The number of calls that send a request to a bucket; a writer of a small object sends one at its commit."""
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
    """Insert stores, numbered from `first`, with one tag each.

    The stores are copies of `like`, whose files are in its manifest. Without `like`, they are stores that no test
    opens.
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

"""Helpers for tests of stores: small protos, uploads in one call, and readers that leave nothing out."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar
from unittest.mock import patch

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.protos.writer import varint

from protoslice.catalog import collector as collector_table
from protoslice.catalog import new_objects
from protoslice.catalog.manifest import sums_of
from protoslice.catalog.marker import MARKER
from protoslice.catalog.spaces import DEFAULT_SPACE, SpaceTable, Usage
from protoslice.catalog.uploads import UploadTable
from protoslice.database import Database
from protoslice.database.transactions import Transaction
from protoslice.errors import NoRoot, Unsupported
from protoslice.facts import Store
from protoslice.ingest import file_writer, publishing
from protoslice.serving import OpenStore, Representation, StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import Created, GarbageReport, IngestRequest, Stores, collection
from protoslice.stores.backups import SNAPSHOTS
from protoslice.views import chunks, documents, models

T = TypeVar("T")


@pytest.fixture
def storage() -> MemoryStorage:
    """Return an empty storage."""
    return MemoryStorage()


@pytest.fixture
async def stores(storage: MemoryStorage) -> AsyncIterator[Stores]:
    """Return the stores of the default space in `storage`."""
    async with opened(storage) as stores:
        yield stores


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx(*sizes: int, seed: int = 0, nodes: str = "") -> bytes:
    """Return an `onnx.ModelProto` with one initializer for each of `sizes`, in bytes; the content depends on `seed`.

    `nodes` are the nodes' names, one character each. Each node reads the output of the node before it.
    """
    random = Random(seed)
    graph = field(2, b"graph")
    for before, name in zip(f"-{nodes}", nodes, strict=False):
        graph += field(1, b"".join(field(n, each.encode()) for n, each in enumerate((before, name, name, "Relu"), 1)))
    for number, size in enumerate(sizes):
        dims = b"\x08" + varint(size)
        graph += field(5, dims + b"\x10\x03" + field(8, b"weight-%d" % number) + field(9, random.randbytes(size)))
    return b"\x08\x08" + field(2, b"seed-%d" % seed) + field(7, graph) + field(8, b"\x10\x11")


@contextmanager
def records_apart(largest: int = -1, *, sums: int = -1, files: int = -1) -> Iterator[None]:
    """Limit the sizes up to which content is stored inside other content instead of in a separate object.

    A manifest holds records of at most `largest` bytes. The records of content hold its checksums up to `sums` bytes.
    A manifest holds all files if they have at most `files` bytes together. Use this as a context or as a decorator.
    """
    with (
        patch.object(publishing, "LARGEST_INLINE", largest),
        patch.object(new_objects, "LARGEST_INLINE_SUMS", sums),
        patch.object(file_writer, "LARGEST_HELD", files),
        patch.object(collector_table, "LARGEST_SUMLESS", sums << 14),  # four bytes for each 64 KiB
    ):
        yield


async def open_stores(
    storage: Storage, options: StoreOptions | None = None, database: Database | None = None
) -> Stores:
    """Open the stores in `storage`, by default with the catalogue that belongs to the storage."""
    return await Stores.open(storage, database or catalogue_of(storage), options)


OBJECTS: Final = ObjectKey("objects")
"""The folder of the objects."""
STORED_BYTES: Final = """
    SELECT (SELECT coalesce(sum(size), 0) FROM objects) + (SELECT coalesce(sum(held), 0) FROM stores)
        + (SELECT coalesce(sum(length(body)), 0) FROM manifests)"""
"""The statement that counts the bytes in objects and manifests."""


async def collect_garbage(
    storage: Storage, *, clock: Callable[[], float] = time.time, delay_seconds: float = 0, **options: Any
) -> GarbageReport:
    """Call `protoslice.stores.collection.collect_garbage` at the time of `clock`; by default, bytes go at once."""
    await settled()
    database = catalogue_of(storage)
    with database.at(clock):
        return await collection.collect_garbage(storage, database, delay_seconds=delay_seconds, **options)


async def settled() -> None:
    """Let background tasks release the resources of past requests."""
    for _ in range(3):
        await asyncio.sleep(0)


async def usage_of(storage: Storage, clock: Callable[[], float] = time.time) -> collection.Usage:
    """Return the usage of the default space at the time of `clock`."""
    await settled()
    database = catalogue_of(storage)
    with database.at(clock):
        row = await SpaceTable(database).get(DEFAULT_SPACE)
        return collection.usage_of(row)


async def derived_in(storage: Storage) -> dict[str, bytes]:
    """Return the derived facts in a storage's catalogue by store and name; facts in an object are empty here."""
    sql = "SELECT s.digest, d.name, d.data FROM derived d JOIN stores s ON s.space = d.space AND s.id = d.store"
    rows = await catalogue_of(storage).read(lambda tx: tx.all(sql))
    return {f"{store}/{name}": bytes(data or b"") for store, name, data in rows}


def uploads_in(storage: Storage) -> UploadTable:
    """Return the records of the default space's uploads."""
    return UploadTable(catalogue_of(storage), Usage(DEFAULT_SPACE))


@asynccontextmanager
async def opened(
    storage: Storage, options: StoreOptions | None = None, database: Database | None = None
) -> AsyncIterator[Stores]:
    """Open the stores in `storage` until the block ends; the storage stays open."""
    stores = await open_stores(storage, options, database)
    try:
        yield stores
    finally:
        await stores.close()


def in_memory(work: Callable[[Stores, MemoryStorage], Awaitable[T]], options: StoreOptions | None = None) -> T:
    """Return the result of `work` on new stores in memory."""

    async def run() -> T:
        storage = MemoryStorage()
        async with opened(storage, options) as stores:
            return await work(stores, storage)

    return asyncio.run(run())


def in_files(work: Callable[[Stores, FileStorage], Awaitable[T]], options: StoreOptions | None = None) -> T:
    """Return the result of `work` on new stores in a separate directory."""

    async def run() -> T:
        with TemporaryDirectory() as root:
            async with FileStorage(root) as storage, opened(storage, options) as stores:
                return await work(stores, storage)

    return asyncio.run(run())


async def upload(
    stores: Stores,
    files: bytes | Mapping[str, bytes],
    request: IngestRequest | None = None,
    *,
    piece: int = 300_000,
    expected_sha256: bytes | None = None,
) -> Created:
    """Upload `files` in pieces, or one file `model.onnx`, as a store."""
    if isinstance(files, bytes):
        files = {"model.onnx": files}
    async with await stores.ingest(request or IngestRequest()) as ingest:
        for path, data in files.items():
            sink = await ingest.file(path, expected_sha256=expected_sha256)
            for at in range(0, len(data), piece):
                await sink.write(data[at : at + piece])
            await sink.close()
        return await ingest.commit(expected_sha256=expected_sha256)


async def collect_a_day_later(storage: Storage) -> None:
    """Collect garbage at a time one day and one hour later."""
    await collect_garbage(storage, clock=lambda: time.time() + 90_000)


async def collect_everything(storage: Storage) -> None:
    """Collect garbage for days: unpublished objects expire, and bytes that were never published are deleted twice.

    Running processes are taken for dead, so they cannot upload anything afterwards.
    """
    for days in range(1, 6):
        await collect_garbage(storage, clock=lambda: time.time() + days * 90_000)  # noqa: B023 - it is awaited at once


async def assert_tidy(storage: Storage, database: Database | None = None) -> None:
    """Assert that a storage holds exactly the bytes that the catalogue refers to, and that usage is exact.

    Objects of running requests count as garbage, so call this after `collect_everything`.
    """

    def look(tx: Transaction) -> tuple[set[str], set[str], int, dict[str, int]]:
        rows = {key for (key,) in tx.all("SELECT key FROM objects WHERE unpublished IS NULL")}
        referred = tx.all(
            """
            SELECT key FROM objects o WHERE EXISTS (
                SELECT 1 FROM store_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
                SELECT 1 FROM upload_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
                SELECT 1 FROM derived r WHERE r.space = o.space AND r.object = o.id
            )"""
        )
        trash = tx.all("SELECT count(*) FROM trash")[0][0]
        sums = {
            "stored bytes by objects": STORED_BYTES,
            "stored bytes by usage": "SELECT coalesce(sum(stored_bytes), 0) FROM usage",
            "stores by rows": "SELECT count(*) FROM stores WHERE deleted IS NULL",
            "stores by usage": "SELECT coalesce(sum(stores), 0) FROM usage",
            "logical bytes by rows": "SELECT coalesce(sum(size), 0) FROM stores WHERE deleted IS NULL",
            "logical bytes by usage": "SELECT coalesce(sum(logical_bytes), 0) FROM usage",
        }
        return rows, {key for (key,) in referred}, trash, {name: tx.all(sql)[0][0] for name, sql in sums.items()}

    rows, referred, trash, sums = await (database or catalogue_of(storage)).read(look)
    assert rows == referred, "rows of objects to which nothing refers"
    assert not trash
    found = {key.removesuffix(".sums") for key in await keys_in(storage) if not key.startswith(f"{SNAPSHOTS.text}/")}
    found -= {MARKER.text}
    assert found == referred, f"bytes that no row names, or rows whose bytes are gone: {sorted(found ^ referred)[:5]}"
    for what in ("stored bytes", "stores", "logical bytes"):
        assert sums[f"{what} by usage"] == sums[f"{what} by {'objects' if what == 'stored bytes' else 'rows'}"], what


async def some(stores: Stores, count: int) -> list[str]:
    """Upload `count` new stores, and return their ids, oldest first."""
    return [(await upload(stores, onnx(10, seed=seed))).store.id for seed in range(count)]


async def read(view: Representation, start: int = 0, end: int | None = None) -> bytes:
    """Return the bytes of a view from `start` up to `end`."""
    async with aclosing(view.pieces(start, view.size if end is None else end)) as pieces:
        return b"".join([bytes(piece) async for piece in pieces])


async def every_view(store: OpenStore) -> AsyncIterator[tuple[str, Representation]]:
    """Yield every file and, for a proto, every view of the root, each with a name."""
    for file in store.info.files:
        yield f"file {file.path}", store.file(file.path)
    try:
        yield "metadata", await chunks.metadata(store)
    except (NoRoot, Unsupported):
        return
    for n in range(store.info.chunks):
        yield f"chunk {n}", await chunks.chunk(store, n)
    yield "archive.tar", await models.archive(store)
    yield "merge", await documents.merge(store, "", None, None)
    yield "merge?omit_larger_than=1KiB", await documents.merge(store, "", None, 1024)
    yield "cpb", await chunks.cpb(store)
    for node in (await documents.tree(store, "", 1, 1000, None)).items:
        path = f"{node.path}[0]" if node.count is not None else node.path
        yield f"merge {path}", await documents.merge(store, path, None, None)
    by_policy = await chunks.planned(store, "policy")
    if by_policy is not await chunks.planned(store):
        yield "policy metadata", await chunks.metadata(store, "policy")
        for n in range(len(by_policy.plan)):
            yield f"policy chunk {n}", await chunks.chunk(store, n, "policy")
        yield "policy cpb", await chunks.cpb(store, "policy")


async def assert_whole(stores: Stores, info: Store) -> dict[str, bytes]:
    """Read all views of the store, and return their bytes by name; assert that sizes and digests are right."""
    store = await stores.view(info.id)
    found = {}
    async for name, view in every_view(store):
        found[name] = data = await read(view)
        if len(data) != view.size or view.sha256 not in {None, hashlib.sha256(data).digest()}:
            raise AssertionError(f"{name} of {info.id} is not whole")
    for file in info.files:
        if file.sha256 not in {None, hashlib.sha256(found[f"file {file.path}"]).hexdigest()}:
            raise AssertionError(f"file {file.path} of {info.id} is not what it was")
    return found


async def visible(stores: Stores) -> dict[str, Store]:
    """Return every listed store, by id."""
    found: dict[str, Store] = {}
    cursor: str | None = None
    while True:
        page = await stores.list(limit=100, cursor=cursor)
        found |= {info.id: info for info in page.items}
        cursor = page.next
        if cursor is None:
            return found


async def objects_in(storage: Storage) -> list[str]:
    """Return the keys of the objects that uploads have written."""
    return await keys_in(storage, OBJECTS.text)


async def written(storage: Storage) -> dict[ObjectKey, int]:
    """Return the sizes of the objects that hold files, by key."""
    rows = await catalogue_of(storage).read(lambda tx: tx.all("SELECT key FROM objects WHERE size IS NOT NULL"))
    known = {key for (key,) in rows}
    return {item.key: item.size async for item in storage.iterate(OBJECTS) if item.key.text in known}


async def keys_of(stores: Stores, store: str) -> dict[str, ObjectKey]:
    """Return the keys of a store's objects by content: `file-0`, `side`, and the records of the root.

    Checksums in separate objects have the name of the content they belong to, with `.sums`.
    """
    manifest = await stores.manifests.get(store)
    files = {f"file-{number}": location for number, location in enumerate(manifest.objects)}
    if manifest.side is not None:
        files["side"] = manifest.side
    found = {name: ObjectKey(key) for name, key in manifest.beside.items()}
    for name, location in files.items():
        for each in location.objects:
            if each.key is not None:
                found.setdefault(name, ObjectKey(each.key))
                if each.sums is None:
                    found.setdefault(f"{name}.sums", sums_of(ObjectKey(each.key)))
    return found


async def in_time(storage: Storage) -> list[str]:
    """Return the ids of the stores in the catalogue, newest first."""
    sql = "SELECT digest FROM stores WHERE deleted IS NULL ORDER BY created DESC, id DESC"
    return [row[0] for row in await catalogue_of(storage).read(lambda tx: tx.all(sql))]


async def keys_in(storage: Storage, folder: str | None = None) -> list[str]:
    """Return the keys of all objects in a storage, or below a folder of it."""
    return [item.key.text async for item in storage.iterate(ObjectKey(folder) if folder else None)]

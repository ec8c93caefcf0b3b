"""Small protos, uploads in one call, and readers that leave nothing out: for tests of stores."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from unittest.mock import patch

from tests.support.catalogues import catalogue_of
from tests.support.protos.writer import varint

from protoslice.catalog import Database
from protoslice.errors import NoRoot, Unsupported
from protoslice.facts import Store
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import Created, IngestRequest, OpenStore, Representation, StoreOptions, Stores, usage
from protoslice.stores.collection import garbage
from protoslice.stores.collection.garbage import GarbageReport
from protoslice.stores.ingest import packs, persist
from protoslice.stores.layout import fresh, keys
from protoslice.stores.layout.indexes import IndexEntry
from protoslice.stores.names import DEFAULT_SPACE
from protoslice.stores.uploads.records import UploadRecords
from protoslice.stores.usage import Usage

T = TypeVar("T")


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx(*sizes: int, seed: int = 0) -> bytes:
    """An `onnx.ModelProto` with an initializer of each of `sizes` bytes, whose content depends on `seed`."""
    random = Random(seed)
    graph = field(2, b"graph")
    for number, size in enumerate(sizes):
        dims = b"\x08" + varint(size)
        graph += field(5, dims + b"\x10\x03" + field(8, b"weight-%d" % number) + field(9, random.randbytes(size)))
    return b"\x08\x08" + field(2, b"seed-%d" % seed) + field(7, graph) + field(8, b"\x10\x11")


@contextmanager
def records_apart(largest: int = -1, *, sums: int = -1, files: int = -1) -> Iterator[None]:
    """Context or decorator: manifests hold records of at most `largest` bytes; others are objects.

    Sums of at most `sums` bytes lie in the records of what is stored, and all files of at most `files` bytes together
    in the manifest; others are objects.
    """
    with (
        patch.object(persist, "LARGEST_INLINE", largest),
        patch.object(fresh, "LARGEST_INLINE_SUMS", sums),
        patch.object(packs, "LARGEST_HELD", files),
    ):
        yield


async def open_stores(
    storage: Storage, options: StoreOptions | None = None, database: Database | None = None
) -> Stores:
    """The stores in `storage`, by default with the catalogue that belongs to it."""
    return await Stores.open(storage, database or catalogue_of(storage), options)


async def collect_garbage(storage: Storage, **options: Any) -> GarbageReport:
    """See `protoslice.stores.collection.garbage.collect_garbage`; in the default space."""
    return await garbage.collect_garbage(storage, catalogue_of(storage), DEFAULT_SPACE, **options)


async def usage_of(storage: Storage, **options: Any) -> Usage:
    """See `protoslice.stores.usage.usage_of`; of the default space."""
    return await usage.usage_of(storage, catalogue_of(storage), DEFAULT_SPACE, **options)


async def derived_in(storage: Storage) -> dict[str, bytes]:
    """Derived facts in the catalogue that belongs to a storage, by store and name."""
    rows = await catalogue_of(storage).read(lambda tx: tx.all("SELECT store, name, data FROM derived"))
    return {f"{store}/{name}": bytes(data) for store, name, data in rows}


def uploads_in(storage: Storage) -> UploadRecords:
    """The records of uploads of the default space."""
    return UploadRecords(catalogue_of(storage), DEFAULT_SPACE)


@asynccontextmanager
async def opened(
    storage: Storage, options: StoreOptions | None = None, database: Database | None = None
) -> AsyncIterator[Stores]:
    """The stores in `storage`, closed on the way out; the storage stays open."""
    stores = await open_stores(storage, options, database)
    try:
        yield stores
    finally:
        await stores.close()


def in_memory(work: Callable[[Stores, MemoryStorage], Awaitable[T]], options: StoreOptions | None = None) -> T:
    """The result of `work` on new stores in memory."""

    async def run() -> T:
        storage = MemoryStorage()
        async with opened(storage, options) as stores:
            return await work(stores, storage)

    return asyncio.run(run())


def in_files(work: Callable[[Stores, FileStorage], Awaitable[T]], options: StoreOptions | None = None) -> T:
    """The result of `work` on new stores in a directory of their own."""

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
    """A store of `files`, or of one file `model.onnx`, sent in pieces."""
    if isinstance(files, bytes):
        files = {"model.onnx": files}
    async with await stores.ingest(request or IngestRequest()) as ingest:
        for path, data in files.items():
            sink = await ingest.file(path, told=expected_sha256)
            for at in range(0, len(data), piece):
                await sink.write(data[at : at + piece])
            await sink.close()
        return await ingest.commit(expected_sha256=expected_sha256)


async def collect_a_day_later(storage: Storage) -> None:
    """Collect garbage as if a day and an hour had passed."""
    await collect_garbage(storage, clock=lambda: time.time() + 90_000)


async def some(stores: Stores, count: int) -> list[str]:
    """The ids of as many new stores, oldest first."""
    return [(await upload(stores, onnx(10, seed=seed))).store.id for seed in range(count)]


async def read(view: Representation, start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a view from `start` up to `end`."""
    async with aclosing(view.pieces(start, view.size if end is None else end)) as pieces:
        return b"".join([bytes(piece) async for piece in pieces])


async def every_view(store: OpenStore) -> AsyncIterator[tuple[str, Representation]]:
    """Every file, and every view of the root there is when it is a proto, with a name."""
    from tests.support.views import CASES  # with the server, which programs that only write do without

    for file in store.info.files:
        yield f"file {file.path}", store.file(file.path)
    try:
        yield "metadata", await store.metadata()
    except (NoRoot, Unsupported):
        return
    for n in range(store.info.chunks):
        yield f"chunk {n}", await store.chunk(n)
    for case in CASES:
        if case.everywhere and case.path != "metadata":
            yield case.path, await case.of(store)
    for node in (await store.tree("", 1, 1000, None)).items:
        path = f"{node.path}[0]" if node.count is not None else node.path
        yield f"merge {path}", await store.merge(path, None, None)
    by_policy = await store.planned("policy")
    if by_policy is not await store.planned():
        yield "policy metadata", await store.metadata("policy")
        for n in range(len(by_policy.plan)):
            yield f"policy chunk {n}", await store.chunk(n, "policy")
        yield "policy cpb", await store.cpb("policy")


async def assert_whole(stores: Stores, info: Store) -> dict[str, bytes]:
    """All views of the store by name, read whole and asserted to have the right digests and chunks."""
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
    """Every store that is listed, by id."""
    found: dict[str, Store] = {}
    cursor: str | None = None
    while True:
        page = await stores.list(limit=100, cursor=cursor)
        found |= {info.id: info for info in page.items}
        cursor = page.next
        if cursor is None:
            return found


async def objects_in(storage: Storage, attempt: str | None = None) -> list[str]:
    """The keys of what uploads have written, or one of them: without claims, and the notes of stores."""
    folder = "objects" if attempt is None else f"objects/{attempt}"
    found = await keys_in(storage, folder)
    return [key for key in found if not key.endswith("/claim") and "/of-" not in key]


async def written(storage: Storage) -> dict[ObjectKey, int]:
    """Sizes of the objects that hold files, by key."""
    found = [item async for item in storage.iterate(keys.OBJECTS) if item.key.segments[-1].startswith("file-")]
    return {item.key: item.size for item in found if not item.key.text.endswith(".sums")}


async def in_time(storage: Storage) -> list[str]:
    """Ids of the stores in the index by time, newest first, once for each entry or mark."""
    return [IndexEntry.parse(item.key).store async for item in storage.iterate(keys.BY_TIME)]


async def keys_in(storage: Storage, folder: str | None = None) -> list[str]:
    """The keys of all objects in a storage but its ledgers, or below a folder of it."""
    found = [item.key async for item in storage.iterate(ObjectKey(folder) if folder else None)]
    return [key.text for key in found if key.segments[-1] != keys.LEDGER.text]

"""Uploaded files are compared with a base's files, and share equal content at the same offset.

Content with a known digest is not written again if its store will stay. Sending a store again repairs every damage of
the stored copy.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption, at_every_call
from tests.support.rows import Counting
from tests.support.stores import (
    assert_whole,
    collect_a_day_later,
    collect_garbage,
    in_files,
    in_memory,
    keys_in,
    keys_of,
    objects_in,
    onnx,
    opened,
    read,
    records_apart,
    upload,
    usage_of,
    written,
)

from protoslice import _core
from protoslice.catalog.manifest import ObjectExtent, ObjectLocation
from protoslice.catalog.objects import Collected
from protoslice.database.transactions import Transaction
from protoslice.errors import ChecksumMismatch, IntegrityError
from protoslice.ingest import BaseStore, base_of
from protoslice.ingest.sharing import LEAST_SHARED, MOST_EXTENTS, Layout, Sharing
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import Created, IngestRequest, Stores

MIB: Final = 1 << 20
BLOCK: Final = 64 << 10
TAGGED: Final = IngestRequest(tags=("weights",))
ALWAYS: Final = StoreOptions(trust_seconds=0)
PIECE: Final = 300_001

T = TypeVar("T")


def random_bytes(size: int, seed: int = 0) -> bytes:
    """Return bytes that differ for each seed."""
    return random.Random(seed).randbytes(size)


async def sent(
    stores: Stores,
    data: bytes,
    *,
    path: str = "weights.bin",
    told: bytes | None = None,
    find: Callable[[], Awaitable[OpenStore | None]] | None = None,
) -> Created:
    """Upload a file that is compared with the tag's store, and return the store."""
    async with await stores.ingest(TAGGED) as ingest:
        sink = await ingest.file(path, expected_sha256=told)
        base = await base_of(stores, TAGGED.tags) if find is None else BaseStore(find, stores.worker)
        assert base is not None
        async with base.comparing(sink, path) as compared:
            for at in range(0, len(data), PIECE):
                await compared.write(data[at : at + PIECE])
            await compared.close()
        return await ingest.commit(expected_sha256=told)


async def content(stores: Stores, store: str) -> bytes:
    """Return the only file of a store."""
    opened_store = await stores.view(store)
    return await read(opened_store.file(opened_store.info.files[0].path))


def test_versions_write_the_blocks_that_changed() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        data = bytearray(random_bytes(9 * MIB + 12_345))
        versions = {(await sent(stores, bytes(data))).store.id: bytes(data)}
        for number in range(1, 6):
            at = number * 1_500_000
            data[at : at + 400_000] = random_bytes(400_000, number)
            versions[(await sent(stores, bytes(data))).store.id] = bytes(data)
        sizes = await written(storage)
        assert len(versions) == len(sizes) == 6
        assert sum(sizes.values()) <= len(data) + 5 * (400_000 + 2 * BLOCK)
        await collect_a_day_later(storage)
        async with opened(storage) as others:
            for store, expected in versions.items():
                assert await content(others, store) == expected

    in_memory(work, ALWAYS)


@pytest.mark.parametrize("size", [9 * MIB - 1, 9 * MIB, 9 * MIB + BLOCK + 1, 5 * MIB], ids=str)
def test_versions_of_other_lengths(size: int) -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        long = random_bytes(9 * MIB + 3 * BLOCK)
        await sent(stores, long)
        made = await sent(stores, long[:size])
        assert await content(stores, made.store.id) == long[:size]
        assert sum((await written(storage)).values()) <= len(long) + 4 * BLOCK

    in_memory(work, ALWAYS)


class Reads(InterceptedStorage):
    """A storage that counts reads of file objects."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.calls: Counter[str] = Counter()

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        is_read = name == "stream" or name.startswith("get")
        if is_read and key is not None and key.segments[0] == "objects" and key.segments[-1].startswith("file-"):
            self.calls[name] += 1
        return await call()


def test_a_file_with_nothing_in_common_costs_no_read() -> None:
    async def work(_: Stores, __: MemoryStorage) -> None:
        storage = Reads()
        async with opened(storage, ALWAYS) as stores:
            await sent(stores, random_bytes(6 * MIB))
            first = +storage.calls
            storage.calls.clear()
            await sent(stores, random_bytes(6 * MIB, 1))
            assert storage.calls == first

    in_memory(work)


def forged(data: bytes, at: int) -> bytes:
    """Return other bytes with the same CRC-32C: the generator polynomial is added to them."""
    polynomial = int(f"{0x11EDC6F41:033b}"[::-1], 2)  # the first coefficient is the lowest bit of the first byte
    twin = bytearray(data)
    for number, byte in enumerate(polynomial.to_bytes(5, "little")):
        twin[at + number] ^= byte
    return bytes(twin)


def test_an_equal_checksum_is_not_believed() -> None:
    data = random_bytes(6 * MIB)
    twin = forged(data, 2 * MIB + 17)
    sums = [_core.BlockSums(), _core.BlockSums()]
    for each, content_ in zip(sums, (data, twin), strict=True):
        each.update(content_)
    assert data != twin
    assert sums[0].finish() == sums[1].finish()

    async def work(stores: Stores, _: MemoryStorage) -> None:
        await sent(stores, data)
        assert await content(stores, (await sent(stores, twin)).store.id) == twin

    in_memory(work, ALWAYS)


def test_a_damaged_base_spoils_nothing() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        data = random_bytes(9 * MIB)
        await sent(stores, data)
        (key,) = await written(storage)
        await storage.put(key, data[: 5 * MIB] + bytes([data[5 * MIB] ^ 1]) + data[5 * MIB + 1 :])
        changed = data[:-1] + bytes([data[-1] ^ 1])
        made = await sent(stores, changed)
        async with opened(storage) as others:
            assert await content(others, made.store.id) == changed
        assert 4 * MIB < sum((await written(storage)).values()) - len(data) < 5 * MIB, "what came before is shared"

    in_memory(work, ALWAYS)


def test_small_files_and_files_that_are_told_to_be_there_ask_for_no_base() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        async def find() -> OpenStore | None:
            raise AssertionError("nobody needs a base")

        await sent(stores, random_bytes(MIB - 1), find=find)
        data = random_bytes(5 * MIB)
        made = await sent(stores, data)
        told = bytes.fromhex(made.store.files[0].sha256 or "")
        again = await sent(stores, data, path="other.bin", told=told, find=find)
        assert (again.created, await content(stores, again.store.id)) == (True, data)

    in_memory(work, ALWAYS)


def test_an_only_file_may_have_another_name() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        data = random_bytes(5 * MIB)
        await sent(stores, data)
        await sent(stores, data, path="renamed.bin")
        assert sum((await written(storage)).values()) == len(data)

    in_memory(work, ALWAYS)


async def store_of_base(stores: Stores, tag: str) -> OpenStore | None:
    """Return the base of an upload with this tag."""
    base = await base_of(stores, (tag,))
    return None if base is None else await base.store()


def test_the_last_version_of_a_name_is_the_base() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        one, two, other = [(await upload(stores, {"a": b"%d" % number})).store.id for number in range(3)]
        for tag, store in (("m:10", one), ("m:9", two), ("mm:1", other), ("m", other)):
            await stores.put_tag(tag, store)
        found = await store_of_base(stores, "m:11")
        assert found is not None
        assert found.info.id == two
        await stores.tags.remove("m:9")
        found = await store_of_base(stores, "m:11")
        assert found is not None
        assert found.info.id == one
        assert await store_of_base(stores, "n:1") is None

    in_memory(work, ALWAYS)


def test_parts_that_go_on_with_each_other_count_as_one() -> None:
    one = ObjectLocation(1 << 40, key="objects/a/file-0")
    sharing, layout, worth = Sharing(), Layout(), frozenset({"objects/a/file-0"})

    def takes(at: int) -> bool:
        extent = ObjectExtent(one, at * LEAST_SHARED, (at + 1) * LEAST_SHARED)
        taken = sharing.takes(extent, worth, goes_on=layout.ends_before(extent))
        if taken:
            layout.share(extent)
        else:
            layout.write(extent.size)
        return taken

    assert all(takes(at) for at in range(2 * MOST_EXTENTS))
    for at in range(MOST_EXTENTS - 1):
        layout.write(1)
        assert takes(at)
    assert not takes(0)
    assert not takes(MOST_EXTENTS - 1), "it goes on with the last, and other bytes are written between"


def test_an_upload_finds_its_base_once() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        files = {"a.bin": random_bytes(5 * MIB), "b.bin": random_bytes(5 * MIB, 1)}
        before = await stores.view((await upload(stores, files)).store.id)
        found = 0

        async def find() -> OpenStore | None:
            nonlocal found
            found += 1
            return before

        base = BaseStore(find, stores.worker)
        async with await stores.ingest(IngestRequest()) as ingest:
            for path, data in files.items():
                async with base.comparing(await ingest.file(path), path) as compared:
                    await compared.write(data[:-1])
                    await compared.close()
            await ingest.commit()
        assert found == 1
        assert sum((await written(storage)).values()) <= 10 * MIB + 2 * BLOCK

    in_memory(work, ALWAYS)


MODEL = onnx(3000)
LARGE = onnx(2 << 20, seed=1)
"""A model that arrives in several batches, and so would be written while it arrives."""


async def told(stores: Stores, data: bytes | dict[str, bytes], request: IngestRequest | None = None) -> Created:
    """Upload a store of one file whose digest the client announces."""
    (content,) = data.values() if isinstance(data, dict) else (data,)
    return await upload(stores, data, request, expected_sha256=hashlib.sha256(content).digest())


async def test_nothing_is_written_of_what_is_there(stores: Stores, storage: Storage) -> None:
    first = await upload(stores, MODEL)
    before = await keys_in(storage)
    again = await told(stores, MODEL)
    assert (again.store, again.created) == (first.store, False)
    assert await keys_in(storage) == before


@pytest.mark.parametrize(
    ("files", "request_"),
    [
        ({"model.onnx": MODEL}, IngestRequest()),
        ({"model.onnx": MODEL}, IngestRequest(min_chunk=64, max_chunk=900)),
        ({"model.onnx": MODEL}, IngestRequest(rules=("graph.initializer: every 1",))),
        ({"empty": b""}, IngestRequest()),
        ({"notes.txt": b"no proto"}, IngestRequest()),
        ({"unknown": MODEL}, IngestRequest(type="unknown")),
        ({"x.cpb": (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()}, IngestRequest()),
    ],
)
async def test_the_store_is_the_one_that_is_made_without_a_digest(
    stores: Stores, files: dict[str, bytes], request_: IngestRequest
) -> None:
    first = await told(stores, files, request_)
    assert first.created
    await assert_whole(stores, first.store)
    made = await upload(stores, files, request_)
    assert (made.store, made.created) == (first.store, False)
    again = await told(stores, files, request_)
    assert (again.store, again.created) == (first.store, False)


async def test_a_large_file_that_is_there_is_read_and_not_written(stores: Stores, storage: Storage) -> None:
    first = await told(stores, LARGE)
    before = await keys_in(storage)
    again = await told(stores, LARGE)
    assert (again.store, again.created) == (first.store, False)
    assert await keys_in(storage) == before


async def test_another_store_of_a_large_file_shares_its_object(stores: Stores, storage: Storage) -> None:
    first = await told(stores, LARGE)
    objects = await objects_in(storage)
    other = await told(stores, {"other.onnx": LARGE}, IngestRequest(max_chunk=1 << 20))
    assert other.created
    assert other.store.id != first.store.id
    assert await objects_in(storage) == objects
    await stores.delete(first.store.id)
    await collect_a_day_later(storage)
    await assert_whole(stores, other.store)


async def test_the_digest_of_another_large_file_gives_nobody_its_bytes(stores: Stores, storage: Storage) -> None:
    await told(stores, LARGE)
    before = await keys_in(storage)
    with pytest.raises(ChecksumMismatch):
        await upload(stores, onnx(2 << 20, seed=2), expected_sha256=hashlib.sha256(LARGE).digest())
    with pytest.raises(ChecksumMismatch):
        await upload(stores, LARGE[:-1], expected_sha256=hashlib.sha256(LARGE).digest())
    assert await keys_in(storage) == before


async def test_a_large_file_of_a_removed_store_is_written(stores: Stores, storage: Storage) -> None:
    first = (await told(stores, LARGE)).store
    lost = (await stores.view(first.id)).manifest.object_ids
    await stores.delete(first.id)
    made = await told(stores, {"other.onnx": LARGE})
    async with opened(storage) as fresh:
        assert not lost & (await fresh.view(made.store.id)).manifest.object_ids


def test_a_large_file_whose_store_goes_while_it_is_sent_again_is_written_or_refused() -> None:
    """A refused client sends the file again, as for any `Conflict`."""
    outcomes = set[str]()

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as theirs:
            first = (await told(theirs, LARGE)).store

            async def remove() -> None:
                await theirs.delete(first.id)
                await asyncio.sleep(0.001)
                await collect_garbage(storage, grace_seconds=0)

            interruption = Interruption(remove)
            database = InterruptedDatabase(catalogue_of(storage), interruption)
            async with opened(InterruptedStorage(storage, interruption), database=database) as ours:
                interruption.arm(number)
                try:
                    made = (await told(ours, {"other.onnx": LARGE})).store
                    outcomes.add("stored")
                except Collected:
                    outcomes.add("refused")
                    made = (await told(ours, {"other.onnx": LARGE})).store
            async with opened(storage) as fresh:
                await assert_whole(fresh, made)
        return interruption.reached

    asyncio.run(at_every_call(at, 5))
    assert outcomes == {"stored", "refused"}


@pytest.mark.parametrize("left", [None, b"half of it"])
async def test_a_large_file_whose_object_is_lost_is_written(
    stores: Stores, storage: Storage, left: bytes | None
) -> None:
    await told(stores, LARGE)
    (lost,) = await objects_in(storage)
    if left is None:
        await storage.delete(ObjectKey(lost))
    else:
        await storage.put(ObjectKey(lost), left)
    made = await told(stores, LARGE)
    async with opened(storage) as fresh:
        await assert_whole(fresh, made.store)


async def test_tags_are_set_and_others_told(stores: Stores) -> None:
    first = (await upload(stores, MODEL, IngestRequest(tags=("a",)))).store
    again = await told(stores, MODEL, IngestRequest(tags=("b",)))
    assert again.store.tags == ("a", "b")
    assert (await stores.tags.get("b")).store == first.id


async def test_a_store_that_is_removed_is_made_anew(stores: Stores) -> None:
    first = (await upload(stores, MODEL)).store
    await stores.delete(first.id)
    again = await told(stores, MODEL)
    assert again.created
    await assert_whole(stores, again.store)


async def test_a_report_is_made_all_the_same(stores: Stores) -> None:
    await upload(stores, MODEL)
    assert (await told(stores, MODEL, IngestRequest(report=True))).report is not None


async def test_a_wrong_digest_writes_nothing() -> None:
    counting = Counting(MemoryStorage())
    async with opened(counting) as stores:
        counting.calls.clear()
        with pytest.raises(ChecksumMismatch):
            await upload(stores, MODEL, expected_sha256=bytes(32))
    assert counting.calls == {}


MENDED = onnx(3000, 90_000, seed=4)
FILES = {"model.onnx": MENDED, "large.bin": bytes(range(256)) * 8000, "note": b"text"}


async def spoil(storage: Storage, key: ObjectKey, how: str) -> None:
    """Damage an object as a failing disk, or an attacker, would."""
    data = await storage.get_range(key, 0, (await storage.stat(key)).size)
    await storage.delete(key)
    if how == "flipped":
        await storage.put(key, data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :])
    elif how == "cut":
        await storage.put(key, data[:-1])


async def spoil_manifest(stores: Stores, how: str) -> None:
    """Damage the manifest of the only store."""

    def work(tx: Transaction) -> None:
        (row,) = tx.all("SELECT id, manifest FROM stores WHERE deleted IS NULL")
        data = bytearray(row[1])
        data[len(data) // 2] ^= 4
        values = {"missing": b"", "flipped": bytes(data), "cut": bytes(row[1][:-1])}
        tx.run("UPDATE stores SET manifest = :data WHERE id = :id", data=values[how], id=row[0])

    await stores.database.write(work)


@pytest.mark.parametrize("how", ["missing", "flipped", "cut"])
@records_apart()
def test_each_object_of_a_store_in_turn(how: str) -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        info = (await upload(stores, FILES, IngestRequest(tags=("a",)))).store
        objects = len(await objects_in(storage))
        names = [*await keys_of(stores, info.id), "manifest"]
        assert len(names) > objects >= 7
        for name in names:
            if name == "manifest":
                await spoil_manifest(stores, how)
            else:
                await spoil(storage, (await keys_of(stores, info.id))[name], how)
            async with opened(storage) as damaged:
                with pytest.raises(IntegrityError):
                    await assert_whole(damaged, info)
            again = await upload(stores, FILES)
            assert again.store.id == info.id
            async with opened(storage) as fresh:
                views = await assert_whole(fresh, again.store)
                assert views["file large.bin"] == FILES["large.bin"]
                assert (await fresh.get("a")).id == info.id
            await asyncio.sleep(0.002)
            await collect_garbage(storage, grace_seconds=0)
            assert len(await objects_in(storage)) == objects, "those of the damaged copy are gone"

    in_memory(work)


def test_a_damaged_store_is_said_to_be_new_when_it_is_sent_again() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, FILES)).store
        assert not (await upload(stores, FILES)).created
        await spoil(storage, (await keys_of(stores, info.id))["file-1"], "flipped")
        async with opened(storage) as fresh:
            with pytest.raises(IntegrityError):
                await assert_whole(fresh, info)
        assert (await upload(stores, FILES)).created
        assert not (await upload(stores, FILES)).created
        await assert_whole(stores, info)
        async with opened(storage) as fresh:
            await assert_whole(fresh, info)
        assert (await usage_of(storage)).stores == 1, "it was mended, and did not become two"

    in_files(work)


async def test_readers_of_the_old_copy_get_to_the_end(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, FILES)).store
    keys = await keys_of(stores, info.id)
    async with opened(storage) as others:
        view = (await others.view(info.id)).file("large.bin")
        pieces = view.pieces(0, view.size)
        data = bytes(await anext(pieces))
        await spoil(storage, keys["file-0"], "missing")
        assert (await upload(stores, FILES)).created
        await collect_garbage(storage, grace_seconds=3600)
        async for piece in pieces:
            data += bytes(piece)
        assert data == FILES["large.bin"]


async def test_a_store_that_is_mended_is_not_created_again(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, FILES)).store
    await spoil(storage, (await keys_of(stores, info.id))["file-0"], "missing")
    assert (await upload(stores, FILES)).created
    changes = await stores.database.read(lambda tx: tx.all("SELECT what FROM audit ORDER BY number"))
    assert changes == [("store.created",), ("store.repaired",)]

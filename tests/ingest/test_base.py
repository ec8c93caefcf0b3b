"""Files that arrive are compared with those of a base: what is equal at the same offset is shared."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest
from tests.support.stores import collect_a_day_later, in_memory, opened, read, upload, written

from protoslice import _core
from protoslice.catalog.manifest import ObjectExtent, ObjectLocation
from protoslice.ingest import BaseStore, base_of
from protoslice.ingest.sharing import LEAST_SHARED, MOST_EXTENTS, Layout, Sharing
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import Created, IngestRequest, Stores

MIB: Final = 1 << 20
BLOCK: Final = 64 << 10
TAGGED: Final = IngestRequest(tags=("weights",))
ALWAYS: Final = StoreOptions(trust_seconds=0)
PIECE: Final = 300_001

T = TypeVar("T")


def random_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that no two seeds share."""
    return random.Random(seed).randbytes(size)


async def sent(
    stores: Stores,
    data: bytes,
    *,
    path: str = "weights.bin",
    told: bytes | None = None,
    find: Callable[[], Awaitable[OpenStore | None]] | None = None,
) -> Created:
    """The store of a file that is compared with what the tag points at."""
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
    """The only file of a store."""
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
    """Storage that counts reads of objects of files."""

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
    """Other bytes with the same CRC-32C: those that the generator polynomial is added to."""
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
    """The base of an upload with this tag."""
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

"""Quotas of spaces: they are exact at every commit, even if replicas know less, and refuse before bytes are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from random import Random

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.stores import (
    STORED_BYTES,
    assert_tidy,
    collect_everything,
    collect_garbage,
    objects_in,
    onnx,
    open_stores,
    opened,
    upload,
    usage_of,
    visible,
)

from protoslice.catalog.manifest import Manifest
from protoslice.catalog.objects import object_id
from protoslice.catalog.spaces import DEFAULT_SPACE, LIMITS, Quota, Quotas, SpaceTable, SpaceUsage, Usage
from protoslice.database import Database, connect, upgrade
from protoslice.errors import InvalidInput, NotFound, QuotaExceeded, SpaceLimit
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Body, NewUpload

MODEL = onnx(20_000)
QUOTA = 150_000


def with_replicas(count: int, work: Callable[[list[Stores], MemoryStorage], Awaitable[None]], **limits: int) -> None:
    """Do `work` with replicas over one storage and one catalogue."""

    async def run() -> None:
        storage = MemoryStorage()
        options = StoreOptions(quota=Quota(**limits))
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            replicas = [await stack.enter_async_context(opened(storage, options)) for _ in range(count)]
            await work(replicas, storage)

    asyncio.run(run())


async def content(storage: MemoryStorage) -> int:
    """Return the bytes of the objects that stores and uploads have, and of files in manifests: the oracle."""
    rows = await catalogue_of(storage).read(lambda tx: tx.all("SELECT key FROM objects WHERE size IS NOT NULL"))
    held = await catalogue_of(storage).read(lambda tx: tx.all("SELECT manifest FROM stores"))
    manifests = [Manifest.decode(bytes(data)) for (data,) in held]
    known = {key for (key,) in rows}
    sizes = {item.key.text: item.size async for item in storage.iterate()}
    inside = sum(len(each.held or b"") for one in manifests for stored in one.objects for each in stored.objects)
    return inside + sum(size for key, size in sizes.items() if key.removesuffix(".sums") in known)


def test_what_is_taken_in_is_counted_once() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, MODEL)
        await upload(stores, {"a": b"a" * 3_000_000, "b": b"b"})
        await upload(stores, MODEL)
        used = await usage_of(storage)
        assert (used.stored_bytes, used.stores) == (await content(storage), 2)
        assert used.stored_bytes == used.logical_bytes == len(MODEL) + 3_000_001
        async with await stores.ingest(IngestRequest()) as ingest:
            await ingest.take({"again": (await stores.files(made.store.id))["model.onnx"]})
            await ingest.commit()
        shared = await usage_of(storage)
        assert (shared.stored_bytes, shared.stores) == (used.stored_bytes, 3)
        assert shared.logical_bytes == used.logical_bytes + len(MODEL)

    with_replicas(1, work)


def test_large_checksums_count_with_what_they_belong_to() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        await upload(stores, {"a": bytes(17 << 20)})
        assert len(await objects_in(storage)) == 2
        assert (await usage_of(storage)).stored_bytes == await content(storage) > 17 << 20

    with_replicas(1, work)


def test_a_full_space_takes_no_byte_more_and_says_how_full_it_is() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        await upload(stores, {"a": b"a" * 60_000})
        before = await objects_in(storage)
        await stores.quotas.refresh()
        with pytest.raises(QuotaExceeded, match=r"of .*\(100000 B\).*no room for"):
            await upload(stores, {"b": b"b" * 60_000})
        assert await objects_in(storage) == before, "refused before it was written"
        assert (await usage_of(storage)).stored_bytes == await content(storage) == 60_000
        await upload(stores, {"c": b"c" * 40_000})
        with pytest.raises(QuotaExceeded):
            await upload(stores, {"d": b"d" * 5000})

    with_replicas(1, work, stored_bytes=100_000)


@pytest.mark.parametrize("count", [1, 3])
def test_writers_at_once_do_not_exceed_a_quota_together(count: int) -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        sent = [upload(replicas[n % count], {"m": b"%d" % n * 1_500_000}) for n in range(9)]
        found = await asyncio.gather(*sent, return_exceptions=True)
        refused = [each for each in found if isinstance(each, BaseException)]
        assert {type(each) for each in refused} == {QuotaExceeded}
        assert len(refused) >= 9 - 3
        assert await content(storage) == (await usage_of(storage)).stored_bytes <= 5_000_000

    with_replicas(count, work, stored_bytes=5_000_000)


async def test_replicas_on_real_engines_do_not_exceed_a_quota_together(catalogue: str) -> None:
    """Each replica has separate connections: close to the quota, commits wait for each other."""
    storage, options = MemoryStorage(), StoreOptions(quota=Quota(stored_bytes=100_000, stores=12))
    async with AsyncExitStack() as stack:
        databases: list[Database] = []
        for _ in range(3):
            databases.append(connect(catalogue, ""))
            stack.push_async_callback(databases[-1].close)
            await upgrade(databases[-1])
        replicas = [await stack.enter_async_context(opened(storage, options, each)) for each in databases]

        async def send(number: int) -> bool:
            size = 7000 if number % 2 else 100  # an object, or bytes in the manifest
            with suppress(QuotaExceeded):
                return (await upload(replicas[number % 3], {"f": b"%02d" % number * (size // 2)})).created
            return False

        sent = sum(await asyncio.gather(*(send(number) for number in range(60))))
        row = await SpaceTable(databases[0]).get(DEFAULT_SPACE)
        assert sent == row.held.stores == len(await visible(replicas[0])) == 12
        sums = await databases[1].read(lambda tx: tx.all(STORED_BYTES))
        assert row.held.stored_bytes == sums[0][0] <= 100_000


def test_stores_are_counted_and_one_that_is_there_takes_no_room() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, {"a": b"a"})
        waiting = await stores.ingest(IngestRequest())
        await upload(stores, {"b": b"b"})
        await stores.quotas.refresh()
        with pytest.raises(QuotaExceeded, match="has 2 of at most 2 stores"):
            await upload(stores, {"c": b"c"})
        async with waiting as late:  # accepted while there was space
            sink = await late.file("a")
            await sink.write(b"a")
            await sink.close()
            assert not (await late.commit()).created
        await stores.delete(made.store.id)
        await stores.quotas.refresh()
        await upload(stores, {"c": b"c"})

    with_replicas(1, work, stores=2)


def test_a_restored_store_needs_room_too() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = (await upload(stores, {"a": b"a"}, IngestRequest(tags=("t",)))).store
        await stores.delete(made.id)
        other = (await upload(stores, {"b": b"b"})).store
        with pytest.raises(QuotaExceeded, match="has 1 of at most 1 stores"):
            await stores.restore(made.id)
        assert set(await visible(stores)) == {other.id}
        with pytest.raises(NotFound):
            await stores.tags.get("t")
        await stores.delete(other.id)
        assert (await stores.restore(made.id)).store.tags == ("t",)

    with_replicas(1, work, stores=1)


def test_several_removals_of_one_store_count_once() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, {"a": b"a"})
        await upload(stores, {"b": b"b"})
        found = await asyncio.gather(*(stores.delete(made.store.id) for _ in range(5)), return_exceptions=True)
        assert sum(not isinstance(each, BaseException) for each in found) == 1
        assert (await usage_of(storage)).stores == 1

    with_replicas(1, work)


def test_what_fails_takes_no_room() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        for _ in range(3):
            async with await stores.ingest(IngestRequest()) as ingest:
                sink = await ingest.file("model.onnx")
                await sink.write(bytes(2 << 20))
                await sink.close()
            with pytest.raises(QuotaExceeded):
                await upload(stores, {"m": bytes(4 << 20)})
        assert (await usage_of(storage)).stored_bytes == 0
        await upload(stores, {"m": bytes(3_000_000)})
        assert (await usage_of(storage)).stored_bytes == 3_000_000

    with_replicas(1, work, stored_bytes=3_000_000)


def test_bytes_that_a_request_has_written_count_for_the_next_ones() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        async with await stores.ingest(IngestRequest()) as ingest:
            first = await ingest.file("first")
            await first.write(bytes(2 << 20))
            await first.close()
            second = await ingest.file("second")
            await second.write(bytes(1 << 20))
            with pytest.raises(QuotaExceeded):
                await second.write(bytes(1 << 20))  # waits for the batch before
            assert [(await storage.stat(ObjectKey(key))).size for key in await objects_in(storage)] == [2 << 20]

    with_replicas(1, work, stored_bytes=5 << 19)


def test_bytes_that_a_request_has_published_do_not_count_twice() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        objects = stores.new_objects()
        for _ in range(3):
            key = await objects.put(bytes(2 << 20))
            objects.kept(objects.own([object_id(key.text)]))
        objects.end()

    with_replicas(1, work, stored_bytes=3 << 20)


def test_a_replica_that_has_not_heard_of_what_others_stored_is_refused_at_its_commit() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        first, second = replicas
        await second.quotas.refresh()  # believed for a second
        await upload(first, {"a": b"a" * 60_000})
        with pytest.raises(QuotaExceeded):
            await upload(second, {"b": b"b" * 60_000})
        assert len(await visible(second)) == 1
        assert (await usage_of(storage)).stored_bytes == 60_000
        await collect_garbage(storage)
        assert len(await objects_in(storage)) == 1

    with_replicas(2, work, stored_bytes=100_000)


def test_a_removed_store_counts_until_its_data_is_collected() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, {"a": b"a" * 60_000})
        await stores.delete(made.store.id)
        used = await usage_of(storage)
        assert (used.stored_bytes, used.stores, used.logical_bytes) == (60_000, 0, 0)
        with pytest.raises(QuotaExceeded, match="Removed stores count until garbage collection deletes their data"):
            await upload(stores, {"b": b"b" * 60_000})
        await asyncio.sleep(0.001)
        await collect_garbage(storage, grace_seconds=0)
        await stores.quotas.refresh()
        await upload(stores, {"b": b"b" * 60_000})
        assert (await usage_of(storage)).stored_bytes == 60_000

    with_replicas(1, work, stored_bytes=100_000)


def test_a_quota_of_its_own_holds_at_every_replica_and_survives_collections() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        first, second = replicas
        await second.quotas.refresh()
        table = SpaceTable(first.database)
        await table.change_limits(DEFAULT_SPACE, {"quota_stores": 1, "quota_requests": 0})
        await first.quotas.refresh()
        await upload(second, {"a": b"a"})
        with pytest.raises(QuotaExceeded):
            await upload(second, {"b": b"b"})
        await second.quotas.refresh()
        assert (second.quotas.quota.stores, second.quotas.quota.requests) == (1, 0)
        await collect_everything(storage)
        await first.quotas.refresh()
        assert (first.quotas.quota.stores, first.quotas.used.stores) == (1, 1)
        await table.change_limits(DEFAULT_SPACE, dict.fromkeys(LIMITS))
        await first.quotas.refresh()
        assert (first.quotas.quota.stores, first.quotas.quota.requests) == (None, 7), "those of the service"
        for impossible in (Quota(stores=-1), Quota(stored_bytes=1 << 63)):
            with pytest.raises(InvalidInput):
                impossible.check()

    with_replicas(2, work, requests=7)


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_holds_in_histories_of_replicas_that_die(seed: int) -> None:
    random = Random(seed)

    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        history = History(replicas, storage, random)
        steps = [history.upload, history.upload, history.upload, history.part, history.remove, history.restore]
        for _ in range(60):
            await random.choice([*steps, history.collect, history.die])(random.randrange(len(replicas)))
            used = await usage_of(storage)
            assert used.stored_bytes == await content(storage) <= QUOTA
            assert used.stores == len(await visible(replicas[0]))
        await history.close()
        await collect_everything(storage)
        await assert_tidy(storage)

    with_replicas(3, work, stored_bytes=QUOTA)


class History:
    """Replicas that make random requests."""

    def __init__(self, replicas: list[Stores], storage: MemoryStorage, random: Random) -> None:
        self.replicas = replicas
        self.storage = storage
        self.random = random
        self.removed: list[str] = []
        self.died: list[Stores] = []

    async def upload(self, at: int) -> None:
        with suppress(QuotaExceeded):
            await upload(self.replicas[at], {"f": self.random.randbytes(self.random.randrange(1, 60_000))})

    async def part(self, at: int) -> None:
        """A resumable upload that is not finished."""
        data = self.random.randbytes(self.random.randrange(1, 60_000))

        async def pieces() -> AsyncIterator[bytes]:
            yield data

        with suppress(QuotaExceeded):
            uploads = self.replicas[at].uploads
            begun = await uploads.create(NewUpload(length=len(data) + 1, path="f"))
            await uploads.append(begun.id, Body(pieces=pieces(), offset=0))

    async def remove(self, at: int) -> None:
        if found := await visible(self.replicas[at]):
            self.removed.append(self.random.choice([*found]))
            await self.replicas[at].delete(self.removed[-1])

    async def restore(self, at: int) -> None:
        with suppress(NotFound):
            if self.removed:
                await self.replicas[at].restore(self.random.choice(self.removed))

    async def collect(self, at: int) -> None:
        await asyncio.sleep(0.001)
        await collect_garbage(self.storage, grace_seconds=0)

    async def die(self, at: int) -> None:
        self.died.append(self.replicas[at])
        self.replicas[at] = await open_stores(self.storage, StoreOptions(quota=Quota(stored_bytes=QUOTA)))

    async def close(self) -> None:
        for each in (*self.died, *self.replicas):
            await each.close()


def test_open_uploads_of_a_space_have_a_limit_and_their_length_finds_room_or_is_refused() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        with pytest.raises(QuotaExceeded):
            await stores.uploads.create(NewUpload(length=100_001, path="m"))
        for _ in range(2):
            await stores.uploads.create(NewUpload(length=10, path="m"))
        with pytest.raises(SpaceLimit, match="the space has 2 open uploads, and at most 2 are allowed"):
            await stores.uploads.create(NewUpload(length=10, path="m"))

    with_replicas(1, work, stored_bytes=100_000, open_uploads=2)


def test_requests_under_way_have_a_limit() -> None:
    room = Quotas(SpaceTable(catalogue_of(MemoryStorage())), DEFAULT_SPACE, Quota(requests=1))
    with room.request(), pytest.raises(SpaceLimit), room.request():
        raise AssertionError("one too many")
    with room.request():
        assert room.requests == 1
    assert room.requests == 0


async def test_sums_over_all_slots_are_what_a_space_holds() -> None:
    database = catalogue_of(MemoryStorage())
    for number in range(100):
        change = {"stored_bytes": number, "stores": 1, "logical_bytes": 2 * number}
        await database.write(lambda tx: Usage("a").add(tx, **change))  # noqa: B023
    await database.write(lambda tx: Usage("a").add(tx, stored_bytes=-50, stores=-1, logical_bytes=-3))
    await SpaceTable(database).create("a")
    row = await SpaceTable(database).get("a")
    assert row.held == SpaceUsage(4950 - 50, 99, 2 * 4950 - 3)
    slots = await database.read(lambda tx: tx.all("SELECT count(*) FROM usage WHERE space = 'a'"))
    assert slots[0][0] > 8, "commits of one space seldom wait for each other"

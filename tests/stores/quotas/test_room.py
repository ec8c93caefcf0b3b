"""Quotas of spaces: counted as bytes are written, told to other replicas, counted anew by collections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from protoslice.stores.layout import keys
from protoslice.stores.quotas.counted import is_content
from tests.support.stores import keys_in, onnx, open_stores, opened, upload

from protoslice.errors import Conflict, IntegrityError, QuotaExceeded, SpaceLimit
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, StoreOptions, Stores
from protoslice.stores.envelope import seal
from protoslice.stores.quotas import CountedStorage, Ledgers, Quota, SpaceRoom
from protoslice.stores.uploads.model import NewUpload

MODEL = onnx(20_000)
QUOTA = 150_000
PLACE = ObjectKey("objects/0-a/file-0")


def with_replicas(count: int, work: Callable[[list[Stores], MemoryStorage], Awaitable[None]], **limits: int) -> None:
    """Do `work` with replicas over one storage."""

    async def run() -> None:
        storage = MemoryStorage()
        options = StoreOptions(quota=Quota(**limits))
        async with asyncio.timeout(60), opened(storage, options) as first:
            others = [await open_stores(storage, options) for _ in range(count - 1)]
            await work([first, *others], storage)
            for each in others:
                await each.close()

    asyncio.run(run())


async def content(storage: Storage) -> int:
    """Bytes of content that are there: the oracle."""
    return sum([item.size async for item in storage.iterate(keys.OBJECTS) if is_content(item.key)])


def test_what_is_taken_in_is_what_is_there() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, MODEL)
        await upload(stores, {"a": b"a" * 3_000_000, "b": b"b"})
        await upload(stores, MODEL)
        used = stores.room.used
        assert (used.stored_bytes, used.stores) == (await content(storage), 2)
        await stores.delete(made.store.id)
        assert stores.room.used.stores == 1

    with_replicas(1, work)


def test_a_full_space_takes_no_byte_more_and_says_how_full_it_is() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        await upload(stores, {"a": b"a" * 60_000})
        before = await keys_in(storage)
        with pytest.raises(QuotaExceeded, match=r"of .*\(100000 B\).*no room for"):
            await upload(stores, {"b": b"b" * 60_000})
        assert [key for key in await keys_in(storage) if key not in before and "/file-" in key] == []
        assert stores.room.used.stored_bytes == await content(storage) <= 100_000
        await upload(stores, {"c": b"c" * 10_000})

    with_replicas(1, work, stored_bytes=100_000)


def test_writers_at_once_do_not_exceed_a_quota_together() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        sent = [upload(stores, {"m": b"%d" % n * 1_500_000}) for n in range(8)]
        found = await asyncio.gather(*sent, return_exceptions=True)
        refused = [each for each in found if isinstance(each, BaseException)]
        assert {type(each) for each in refused} == {QuotaExceeded}
        assert await content(storage) <= 5_000_000

    with_replicas(1, work, stored_bytes=5_000_000)


def test_stores_are_counted_and_one_that_is_there_takes_no_room() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, {"a": b"a"})
        waiting = await stores.ingest(IngestRequest())
        await upload(stores, {"b": b"b"})
        with pytest.raises(QuotaExceeded, match="has 2 of 2 stores"):
            await upload(stores, {"c": b"c"})
        async with waiting as late:  # let in while there was room
            sink = await late.file("a")
            await sink.write(b"a")
            await sink.close()
            assert not (await late.commit()).created
        await stores.delete(made.store.id)
        await upload(stores, {"c": b"c"})

    with_replicas(1, work, stores=2)


def test_several_removals_of_one_store_count_once() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, {"a": b"a"})
        await upload(stores, {"b": b"b"})
        found = await asyncio.gather(*(stores.delete(made.store.id) for _ in range(5)), return_exceptions=True)
        assert any(not isinstance(each, BaseException) for each in found)
        assert stores.room.used.stores == 1

    with_replicas(1, work)


def test_what_fails_takes_no_room() -> None:
    async def run() -> None:
        room = SpaceRoom(storage := MemoryStorage(), Quota(stored_bytes=100))
        counted = CountedStorage(storage, room)
        async with await counted.writer(PLACE) as writer:
            await writer.write(b"a" * 90)
            assert room.used.stored_bytes == 90
            with pytest.raises(QuotaExceeded):
                await writer.write(b"a" * 11)
        assert room.used.stored_bytes == 0
        await counted.put_if_absent(PLACE, b"a" * 10)
        with pytest.raises(Conflict):
            await counted.put_if_absent(PLACE, b"a" * 20)
        async with await counted.writer(PLACE) as again:
            await again.write(b"a" * 30)
            with pytest.raises(Conflict):
                await again.commit()
        assert room.used.stored_bytes == 10
        await counted.delete(PLACE)
        await counted.delete(PLACE)
        assert room.used.stored_bytes == 0

    asyncio.run(run())


def test_other_replicas_learn_of_it_and_a_dead_one_costs_what_it_had_not_told() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        first, second, dead = replicas
        await upload(first, {"a": b"a" * 50_000})
        await first.room.share()
        await second.room.share()
        with pytest.raises(QuotaExceeded):
            await upload(second, {"b": b"b" * 60_000})
        await upload(dead, {"c": b"c" * 40_000})  # and never tells
        await second.room.share()
        assert second.room.used.stored_bytes < await content(storage)
        await second.collect_garbage()
        await second.room.share()
        assert (second.room.used.stored_bytes, second.room.used.stores) == (await content(storage), 2)
        assert second.room.used.counted is not None

    with_replicas(3, work, stored_bytes=100_000)


def test_a_collection_counts_what_its_removals_leave() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        made = await upload(stores, {"a": b"a" * 50_000})
        await upload(stores, {"b": b"b" * 10_000})
        await stores.delete(made.store.id)
        await stores.room.share()
        await asyncio.sleep(0.002)
        await stores.collect_garbage(grace_seconds=0, dry_run=True)
        assert (await Ledgers(storage).read()).counted is None
        await stores.collect_garbage(grace_seconds=0)
        await stores.room.share()
        assert 0 < stores.room.used.stored_bytes == await content(storage) < 20_000
        assert stores.room.used.stores == 1

    with_replicas(1, work)


def test_a_quota_of_its_own_is_known_to_every_replica_and_survives_collections() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        first, second = replicas
        await first.room.set_quota(Quota(stores=1, requests=0))
        await second.room.share()
        assert (second.room.quota.stores, second.room.quota.requests) == (1, 0)
        await upload(second, {"a": b"a"})
        with pytest.raises(QuotaExceeded):
            await upload(second, {"b": b"b"})
        await second.collect_garbage()
        await first.room.share()
        assert (first.room.quota.stores, first.room.used.stores) == (1, 1)

    with_replicas(2, work, requests=7)


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_holds_in_histories_of_replicas_that_die(seed: int) -> None:
    """A replica lets in no more than the quota and what it cannot know of: others' bytes since both told."""
    random = Random(seed)

    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        history = History(replicas, storage)
        for _ in range(40):
            at = random.randrange(len(replicas))
            step = random.choice([history.upload, history.upload, history.upload, history.share, history.die])
            await step(at, random)
            if random.random() < 0.1:
                await replicas[at].collect_garbage()
                history.lost = 0
        for each in replicas:
            await each.room.share()
        await replicas[0].collect_garbage()
        for each in replicas:
            await each.room.share()
            assert each.room.used.stored_bytes == await content(storage)

    with_replicas(3, work, stored_bytes=QUOTA)


class History:
    """Replicas at work, and the bytes that each of them cannot know of."""

    def __init__(self, replicas: list[Stores], storage: MemoryStorage) -> None:
        self.replicas = replicas
        self.storage = storage
        self.untold = [0] * len(replicas)
        self.unknown = [0] * len(replicas)
        self.lost = 0
        """Bytes that dead replicas took in and never told."""

    async def upload(self, at: int, random: Random) -> None:
        before = await content(self.storage)
        with suppress(QuotaExceeded):
            await upload(self.replicas[at], {"f": random.randbytes(random.randrange(1, 30_000))})
            after = await content(self.storage)
            assert after == before or after <= QUOTA + self.unknown[at]  # small files lie in their manifest
        added = await content(self.storage) - before
        self.untold[at] += added
        self.unknown = [bytes + (added if each != at else 0) for each, bytes in enumerate(self.unknown)]

    async def share(self, at: int, _: Random) -> None:
        await self.replicas[at].room.share()
        self.untold[at] = 0
        self.unknown[at] = sum(self.untold) + self.lost

    async def die(self, at: int, random: Random) -> None:
        self.lost += self.untold[at]
        self.replicas[at] = await open_stores(self.storage, StoreOptions(quota=Quota(stored_bytes=QUOTA)))
        await self.share(at, random)


def test_open_uploads_of_a_space_have_a_limit_and_their_length_finds_room_or_is_refused() -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        (stores,) = replicas
        with pytest.raises(QuotaExceeded):
            await stores.uploads.create(NewUpload(length=100_001, path="m"))
        for _ in range(2):
            await stores.uploads.create(NewUpload(length=10, path="m"))
        with pytest.raises(SpaceLimit, match="2 open uploads in this space, the limit is 2"):
            await stores.uploads.create(NewUpload(length=10, path="m"))

    with_replicas(1, work, stored_bytes=100_000, open_uploads=2)


def test_requests_under_way_have_a_limit() -> None:
    room = SpaceRoom(MemoryStorage(), Quota(requests=1))
    with room.request(), pytest.raises(SpaceLimit), room.request():
        raise AssertionError("one too many")
    with room.request():
        assert room.requests == 1
    assert room.requests == 0


def ledger(**members: object) -> bytes:
    """A ledger with these members as another program might have written them."""
    sound = {"quota": {"stored_bytes": QUOTA}, "stored_bytes": 5, "stores": 1, "counted": None}
    return seal(json.dumps(sound | members).encode())


DAMAGED = {
    "no envelope": b"{}",
    "no JSON": seal(b"{"),
    "a list": seal(b"[]"),
    "a deep list": seal(b"[" * 100_000),
    "no quota": ledger(quota=None),
    "a quota of text": ledger(quota={"stored_bytes": "1"}),
    "a negative quota": ledger(quota={"stores": -1}),
    "a true quota": ledger(quota={"stores": True}),
    "a quota of half a byte": ledger(quota={"stored_bytes": 0.5}),
    "bytes of text": ledger(stored_bytes="5"),
    "use a number": ledger(stored_bytes=float("nan")),
    "an endless number": ledger(stores=float("inf")),
    "a time of text": ledger(counted="today"),
}


@pytest.mark.parametrize("quota", [0, QUOTA])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_ledger_that_does_not_parse_stops_writing_alone_and_is_mended(name: str, quota: int) -> None:
    async def work(replicas: list[Stores], storage: MemoryStorage) -> None:
        first, second = replicas
        made = await upload(first, MODEL)
        await first.room.share()
        counted = first.room.used
        for mend in ("set_quota", "collection"):
            await storage.put(keys.LEDGER, DAMAGED[name])
            cold = await open_stores(storage, StoreOptions(quota=Quota(stored_bytes=quota)))
            for stores in (cold, first, second):
                await stores.room.share()
                assert (await stores.get(made.store.id)).id == made.store.id
                with pytest.raises(IntegrityError, match="does not parse"):
                    await upload(stores, {mend: b"x" * 5000})
            if mend == "set_quota":
                await first.room.set_quota(Quota(stored_bytes=QUOTA))
                assert first.room.used == replace(counted, quota=Quota(stored_bytes=QUOTA)), "by what was known"
            else:
                await cold.collect_garbage()
            for stores in (cold, first, second):
                await stores.room.share()
                await upload(stores, {mend: b"x" * 5000})
                await stores.room.share()
            await first.room.share()
            assert (first.room.used.stored_bytes, first.room.used.stores) == (
                await content(storage),
                await count(first),
            )
            await cold.close()

    with_replicas(2, work, stored_bytes=quota)


async def count(stores: Stores) -> int:
    """Stores that are there: the oracle."""
    return len((await stores.list(limit=100)).items)


def test_another_replica_that_mended_first_is_believed() -> None:
    async def work(storage: MemoryStorage) -> None:
        await storage.put(keys.LEDGER, DAMAGED["no JSON"])
        here, there = SpaceRoom(storage, Quota()), SpaceRoom(storage, Quota())
        await asyncio.gather(here.share(), there.share())
        await there.set_quota(Quota(stores=3))
        await Ledgers(storage).recount(None, 40, 2, 1.0)
        found = await Ledgers(storage).read()
        assert (found.quota, found.stored_bytes, found.stores) == (Quota(stores=3), 40, 2)

    asyncio.run(work(MemoryStorage()))


def test_counts_below_zero_are_none() -> None:
    async def work(storage: MemoryStorage) -> None:
        await storage.put(keys.LEDGER, ledger(stored_bytes=-1_000_000, stores=-7))
        room = SpaceRoom(storage, Quota(stored_bytes=QUOTA))
        with pytest.raises(QuotaExceeded):
            await room.take(stored_bytes=QUOTA + 1)
        room.give(stores=3)  # came before the quota, and goes
        await room.share()
        await room.take(stores=1)
        await room.share()
        assert (await Ledgers(storage).read()).stores == 1

    asyncio.run(work(MemoryStorage()))

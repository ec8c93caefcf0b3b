"""A collector removes everything that is no longer needed, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from tests.support import rows
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption, at_every_call
from tests.support.stores import (
    assert_tidy,
    assert_whole,
    collect_everything,
    collect_garbage,
    in_files,
    in_memory,
    keys_in,
    keys_of,
    objects_in,
    onnx,
    opened,
    settled,
    upload,
    visible,
)

from protoslice.catalog import derived
from protoslice.catalog.collector import TWICE_SECONDS
from protoslice.catalog.objects import Collected
from protoslice.defaults import DELETION_DELAY_SECONDS
from protoslice.errors import Conflict, NotFound
from protoslice.facts import Store
from protoslice.repositories import Commit, Ref, Repositories
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores, collection
from protoslice.uploads import Body, NewUpload, Upload, UploadOptions
from protoslice.views.pieces import table_of

HOUR = 3600.0
DATA = onnx(90_000)


def later(seconds: float) -> Callable[[], float]:
    """Return a clock that is `seconds` ahead."""
    return lambda: time.time() + seconds


async def collect(storage: Storage, seconds: float, **options: float) -> collection.GarbageReport:
    """Collect as the service does, with its delay, at a time that is `seconds` later."""
    await settled()
    database = catalogue_of(storage)
    with database.at(later(seconds)):
        return await collection.collect_garbage(storage, database, **options)  # type: ignore[arg-type]


async def passed() -> None:
    """Wait until the microsecond of a removal has passed."""
    await asyncio.sleep(0.001)


async def collected_while(storage: Storage, number: int, meanwhile: Callable[[], Awaitable[object]]) -> Interruption:
    """Collect garbage, and call `meanwhile` at call `number` of the storage or the catalogue."""
    interruption = Interruption(meanwhile)
    interruption.arm(number)
    await collection.collect_garbage(
        InterruptedStorage(storage, interruption),
        InterruptedDatabase(catalogue_of(storage), interruption),
        grace_seconds=0,
        delay_seconds=0,
    )
    return interruption


async def test_a_removed_store_is_kept_for_its_readers_and_goes_then(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, onnx(3_000_000))).store
    view = (await stores.view(info.id)).file("model.onnx")
    async with aclosing(view.pieces(0, view.size)) as pieces:
        parts = [bytes(await anext(pieces))]
        await stores.delete(info.id)
        report = await collect_garbage(storage, grace_seconds=HOUR)
        assert (report.objects, report.stores) == (0, 0)
        parts.extend([bytes(piece) async for piece in pieces])
    assert b"".join(parts) == onnx(3_000_000)
    report = await collect_garbage(storage, grace_seconds=HOUR, clock=later(HOUR + 1))
    assert (report.objects, report.stores, report.leftovers) == (1, 1, 0)
    assert report.bytes >= 3_000_000
    assert await keys_in(storage) == ["protoslice.json"]
    await assert_tidy(storage)


async def test_a_store_removed_twice_is_kept_for_the_readers_of_both(stores: Stores, storage: MemoryStorage) -> None:
    for _ in range(2):
        info = (await upload(stores, DATA)).store
        await stores.delete(info.id)
    assert (await collect_garbage(storage, grace_seconds=HOUR, clock=later(HOUR / 2))).objects == 0
    assert len(await objects_in(storage)) == 2


def test_bytes_stay_for_the_delay_even_without_a_grace() -> None:
    """The delay serves readers, and a service that was restored from an older catalogue."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, onnx(3_000_000))).store
        view = (await stores.view(info.id)).file("model.onnx")
        async with aclosing(view.pieces(0, view.size)) as pieces:
            parts = [bytes(await anext(pieces))]
            await stores.delete(info.id)
            await passed()
            report = await collect(storage, 0, grace_seconds=0)
            assert (report.stores, report.objects, report.deleted) == (1, 1, 0)
            with pytest.raises(NotFound):
                await stores.restore(info.id)
            report = await collect(storage, DELETION_DELAY_SECONDS - 1, grace_seconds=0)
            assert (report.objects, report.deleted) == (0, 0)
            parts.extend([bytes(piece) async for piece in pieces])
        assert b"".join(parts) == onnx(3_000_000)
        assert (await collect(storage, DELETION_DELAY_SECONDS + 1, grace_seconds=0)).deleted == 1
        assert await objects_in(storage) == []

    assert DELETION_DELAY_SECONDS >= 600
    in_memory(work)


def test_bytes_that_were_never_published_are_deleted_twice() -> None:
    """A stalled write may arrive after the bytes were deleted."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        async with await stores.ingest(IngestRequest()) as ingest:
            sink = await ingest.file("model.onnx")
            await sink.write(bytes(2 << 20))
            await sink.close()
        await settled()
        rows = await stores.database.read(lambda tx: tx.all("SELECT key FROM objects WHERE due IS NOT NULL"))
        (key,) = [ObjectKey(key) for (key,) in rows]
        assert [key.text] == await objects_in(storage)
        assert (await collect(storage, 0)).objects == 1
        first = DELETION_DELAY_SECONDS + 1
        assert (await collect(storage, first)).deleted == 1
        assert await objects_in(storage) == []
        await storage.put(key, b"late")
        assert (await collect(storage, first + TWICE_SECONDS - 2)).deleted == 0
        assert (await collect(storage, first + TWICE_SECONDS + 2)).deleted == 1
        assert await objects_in(storage) == []
        trash = await stores.database.read(lambda tx: tx.all("SELECT key FROM trash"))
        assert key.text not in {key for (key,) in trash}, "not a third time"

    assert TWICE_SECONDS >= 86_400
    in_memory(work)


async def test_bytes_that_were_published_are_deleted_once(stores: Stores, storage: MemoryStorage) -> None:
    await stores.delete((await upload(stores, DATA)).store.id)
    await passed()
    await collect(storage, 0, grace_seconds=0)
    assert (await collect(storage, DELETION_DELAY_SECONDS + 1, grace_seconds=0)).deleted == 1
    assert await stores.database.read(lambda tx: tx.all("SELECT key FROM trash")) == []


async def test_checksums_that_are_objects_go_with_what_they_belong_to(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, {"weights": bytes(17 << 20)})).store
    keys = await keys_of(stores, info.id)
    assert keys.keys() == {"file-0", "file-0.sums"}
    await stores.delete(info.id)
    await passed()
    await collect_garbage(storage, grace_seconds=0)
    assert await objects_in(storage) == []


def test_an_upload_under_way_is_left_alone() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        async with await stores.ingest(IngestRequest()) as ingest:
            for path, data in {"model.onnx": DATA, "notes": b"text"}.items():
                sink = await ingest.file(path)
                await sink.write(data)
                assert (await collect_garbage(storage, grace_seconds=0)).objects == 0
                await sink.close()
                assert (await collect_garbage(storage, grace_seconds=0)).objects == 0
            info = (await ingest.commit()).store
        await collect_garbage(storage, grace_seconds=0)
        await assert_whole(stores, info)

    in_files(work)


async def commit_after(storage: MemoryStorage, *hours: float) -> Store | Collected:
    """Return an upload's store, or its error, after collections at some hours of the upload."""
    async with opened(storage) as stores, await stores.ingest(IngestRequest()) as ingest:
        sink = await ingest.file("model.onnx")
        await sink.write(onnx(2 << 20))
        await sink.close()
        for each in hours:
            await collect_garbage(storage, clock=later(each * HOUR))
        try:
            return (await ingest.commit()).store
        except Collected as error:
            return error


async def test_upload_of_almost_a_day_is_left_alone() -> None:
    storage = MemoryStorage()
    info = await commit_after(storage, 1, 12, 23, 23.9)
    assert isinstance(info, Store)
    async with opened(storage) as stores:
        await assert_whole(stores, info)


async def test_upload_that_lasts_longer_than_a_day_stores_nothing() -> None:
    storage = MemoryStorage()
    error = await commit_after(storage, 24.1)
    assert isinstance(error, Collected)
    assert "nothing was stored: send the upload again" in error.message
    assert await objects_in(storage) == []
    async with opened(storage) as stores:
        assert await visible(stores) == {}
        await assert_whole(stores, (await upload(stores, onnx(2 << 20))).store)
    await collect_everything(storage)
    await assert_tidy(storage)


async def test_a_process_that_ends_leaves_no_rows_behind() -> None:
    storage = MemoryStorage()
    async with opened(storage) as stores:
        await upload(stores, DATA)
    database = catalogue_of(storage)
    assert len(await database.read(lambda tx: tx.all("SELECT id FROM objects"))) == 1


def test_collections_while_others_upload_and_delete() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        done = False

        async def collect() -> None:
            while not done:
                await collect_garbage(storage, grace_seconds=0)

        async def come_and_go(seed: int) -> str:
            for _ in range(3):
                store_id = (await upload(stores, onnx(90_000, seed=seed))).store.id
                await stores.delete(store_id)
            return (await upload(stores, onnx(90_000, seed=seed))).store.id

        collecting = [asyncio.create_task(collect()) for _ in range(2)]
        ids = await asyncio.gather(*(come_and_go(seed) for seed in range(6)))
        done = True
        await asyncio.gather(*collecting)
        await passed()
        await collect_garbage(storage, grace_seconds=0)
        found = await visible(stores)
        assert set(found) == set(ids)
        for info in found.values():
            await assert_whole(stores, info)
        assert len(await objects_in(storage)) == 6
        await stores.close()
        await assert_tidy(storage)

    in_files(work)


async def test_two_collectors_at_once_count_everything_once(stores: Stores, storage: MemoryStorage) -> None:
    for seed in range(20):
        await stores.delete((await upload(stores, onnx(90_000, seed=seed))).store.id)
    await passed()
    reports = await asyncio.gather(*(collect_garbage(storage, grace_seconds=0) for _ in range(4)))
    assert sum(report.stores for report in reports) == 20
    assert sum(report.objects for report in reports) == 20
    assert sum(report.deleted for report in reports) == 20
    await stores.close()
    await assert_tidy(storage)


async def test_a_dry_run_tells_what_a_collection_would_do_and_does_nothing(
    stores: Stores, storage: MemoryStorage
) -> None:
    large = onnx(2 << 20)
    one = (await upload(stores, {"a": large, "b": onnx(90_000, seed=1)})).store
    async with await stores.ingest(IngestRequest()) as ingest:
        await ingest.take({"a": (await stores.files(one.id))["a"]})
        await ingest.commit()
    await stores.delete(one.id)
    await passed()
    assert (await collect_garbage(storage, dry_run=True)).stores == 0, "within the grace"
    before = await keys_in(storage)
    told = await collect_garbage(storage, grace_seconds=0, dry_run=True)
    assert await keys_in(storage) == before
    assert (told.stores, told.objects, told.deleted) == (1, 1, 0), "the other object is shared"
    done = await collect_garbage(storage, grace_seconds=0)
    assert (told.stores, told.objects, told.bytes) == (done.stores, done.objects, done.bytes)


async def test_a_removed_store_cannot_be_named_before_it_is_restored(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, DATA)).store
    made, ref = await Repositories(stores).create("m"), Ref("heads", "side", Commit(store=info.id))
    await stores.delete(info.id)
    with pytest.raises(Conflict, match="was removed in the meantime"):
        await made.log.create(ref)
    with pytest.raises(NotFound):
        await stores.put_tag("a", info.id)
    await stores.restore(info.id)
    await made.log.create(ref)
    await collect_garbage(storage, grace_seconds=0, clock=later(2 * HOUR))
    await assert_whole(stores, info)


@pytest.mark.parametrize("removed", [False, True])
async def test_a_manifest_that_cannot_be_read_keeps_its_objects_as_long_as_its_store_is_kept(
    stores: Stores, storage: MemoryStorage, removed: bool
) -> None:
    info = (await upload(stores, DATA)).store
    await stores.database.write(lambda tx: tx.run("UPDATE stores SET manifest = :data", data=b"{}"))
    if removed:
        await stores.delete(info.id)
    before = await keys_in(storage)
    report = await collect_garbage(storage, grace_seconds=HOUR)
    assert (report.objects, report.stores) == (0, 0)
    assert await keys_in(storage) == before
    report = await collect_garbage(storage, grace_seconds=HOUR, clock=later(2 * HOUR))
    assert (report.objects, report.stores) == (removed, removed)


async def test_large_facts_about_a_store_go_with_it(
    stores: Stores, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "LARGEST_ROW", 0)
    info = (await upload(stores, {"model.onnx": DATA, "more": bytes(3 << 20)})).store
    (await table_of(await stores.view(info.id))).page(1, None)
    assert len(await objects_in(storage)) == 3, "two files, and the table of pieces"
    await collect_garbage(storage, grace_seconds=0)
    assert len(await objects_in(storage)) == 3
    await stores.delete(info.id)
    await passed()
    await collect_garbage(storage, grace_seconds=0)
    assert await objects_in(storage) == []


async def piece(data: bytes) -> AsyncIterator[bytes]:
    yield data


def test_bytes_of_an_unfinished_upload_stay_until_it_expires() -> None:
    options = StoreOptions(uploads=UploadOptions(lifetime_seconds=HOUR))

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        data = onnx(200_000)
        begun = await stores.uploads.create(NewUpload(length=len(data), path="model.onnx"))
        await stores.uploads.append(begun.id, Body(pieces=piece(data[:100_000]), offset=0))
        held = await objects_in(storage)
        assert held
        for seconds in (0, HOUR / 2, HOUR - 1):
            await collect_garbage(storage, grace_seconds=0, clock=later(seconds))
            assert set(held) <= {*await objects_in(storage)}
        await collect_garbage(storage, grace_seconds=0, clock=later(HOUR + 1))
        assert await objects_in(storage) == []
        with pytest.raises(NotFound):
            await stores.uploads.get(begun.id)

    in_memory(work, options)


def test_a_collection_with_nothing_to_collect_asks_the_storage_for_nothing() -> None:
    """The number of transactions does not depend on the number of stores."""

    async def transactions(count: int) -> int:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            await upload(stores, DATA)
            await rows.seed(stores.database, count)
            counting = rows.Counting(storage)
            catalogue_of(storage).transactions.clear()
            report = await collect_garbage(counting, grace_seconds=HOUR, clock=later(2 * HOUR))
            assert (report.objects, report.stores, report.deleted, report.leftovers) == (0, 0, 0, 0)
            assert {name for name, _ in counting.calls} == {"collect_garbage"}
            return catalogue_of(storage).transactions.total()

    assert asyncio.run(transactions(1100)) == asyncio.run(transactions(10)) < 17


def test_an_upload_that_begins_while_a_collector_is_at_work_goes_on() -> None:
    """The collector's clock is so far ahead that everything new seems old to it."""
    data = onnx(300_000)

    async def at(number: int) -> bool:
        inner = MemoryStorage()
        async with opened(inner) as stores:
            await stores.delete((await upload(stores, DATA)).store.id)
            begun: list[Upload] = []

            async def begin() -> None:
                made = await stores.uploads.create(NewUpload(length=len(data), path="model.onnx"))
                begun.append(await stores.uploads.append(made.id, Body(pieces=piece(data[:200_000]), offset=0)))

            with catalogue_of(inner).at(later(100)):
                interruption = await collected_while(inner, number, begin)
            for each in begun:
                done = await stores.uploads.append(each.id, Body(pieces=piece(data[200_000:]), offset=200_000))
                assert done.state == "stored"
                (info,) = (await visible(stores)).values()
                assert info.id == done.store
                await assert_whole(stores, info)
            return interruption.reached

    asyncio.run(at_every_call(at, 8))


def test_who_shares_an_object_while_it_is_collected_gets_it_or_is_told() -> None:
    """A client that gets `Conflict` can send the bytes again, and no collector deletes them."""
    large = onnx(2 << 20)
    outcomes = set[str]()

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            first = (await upload(stores, {"old": large})).store
            refs = await stores.files(first.id)
            await stores.delete(first.id)
            await passed()

            async def take() -> None:
                ingest = await stores.ingest(IngestRequest())
                try:
                    async with ingest:
                        await ingest.take({"new": refs["old"]})
                        await ingest.commit()
                    outcomes.add("shared")
                except Conflict:
                    outcomes.add("told")
                    assert (await upload(stores, {"new": large})).created

            interruption = await collected_while(storage, number, take)
            if interruption.reached:
                await collect_garbage(storage, grace_seconds=0)
                (info,) = (await visible(stores)).values()
                await assert_whole(stores, info)
        await assert_tidy(storage)
        return interruption.reached

    asyncio.run(at_every_call(at, 8))
    assert outcomes == {"shared", "told"}


def test_a_store_that_is_sent_again_while_its_removal_is_collected_stays() -> None:
    """A collector that pauses anywhere deletes nothing that was acknowledged during the pause."""

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            first = (await upload(stores, DATA, IngestRequest(tags=("a",)))).store
            await stores.delete(first.id)
            await passed()

            async def send() -> None:
                assert (await upload(stores, DATA, IngestRequest(tags=("a", "b")))).created

            interruption = await collected_while(storage, number, send)
            if interruption.reached:
                await collect_garbage(storage, grace_seconds=0)
                (info,) = (await visible(stores)).values()
                assert (info.id, info.tags) == (first.id, ("a", "b"))
                await assert_whole(stores, info)
        await assert_tidy(storage)
        return interruption.reached

    asyncio.run(at_every_call(at, 8))


def test_a_store_that_is_restored_while_its_removal_is_collected_is_whole_or_gone() -> None:
    outcomes = set[str]()

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            first = (await upload(stores, DATA, IngestRequest(tags=("a",)))).store
            await stores.delete(first.id)
            await passed()

            async def restore() -> None:
                try:
                    await stores.restore(first.id)
                    outcomes.add("whole")
                except NotFound:
                    outcomes.add("gone")

            interruption = await collected_while(storage, number, restore)
            for info in (await visible(stores)).values():
                assert info.tags == ("a",)
                await assert_whole(stores, info)
            await collect_garbage(storage, grace_seconds=0)
        await assert_tidy(storage)
        return interruption.reached

    asyncio.run(at_every_call(at, 8))
    assert outcomes == {"whole", "gone"}

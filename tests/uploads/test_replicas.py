"""Several processes over one storage or bucket: each continues any upload, and only one of two appends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption, at_every_call
from tests.support.s3 import RawBucket, emulator
from tests.support.stores import assert_whole, collect_garbage, onnx, opened, upload

from protoslice.errors import Conflict, StorageUnavailable
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, Storage, open_storage
from protoslice.stores import Stores
from protoslice.uploads import Body, NewUpload, Upload, UploadOptions

DATA = onnx(400_000, 90_000, seed=31)
# The emulator closes an object that is replaced while it is read; a client can repeat the failed request.
ENDS = (Upload, Conflict, StorageUnavailable)
OPTIONS = StoreOptions(uploads=UploadOptions(part_bytes=100_000))


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    """Run an emulator of S3."""
    with emulator() as options:
        yield options


@pytest.fixture(params=["memory", "files", "bucket"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> list[Storage]:
    """Return storage that two replicas share."""
    if request.param == "memory":
        return [MemoryStorage()] * 2
    if request.param == "files":
        return [FileStorage(str(tmp_path)) for _ in range(2)]
    options = request.getfixturevalue("bucket")
    uri = RawBucket.make(options).uri
    return [open_storage(uri, options) for _ in range(2)]


@asynccontextmanager
async def replicas(places: list[Storage]) -> AsyncIterator[list[Stores]]:
    async with AsyncExitStack() as stack:
        database = catalogue_of(places[0])
        yield [await stack.enter_async_context(opened(each, OPTIONS, database)) for each in places]
        for each in set(places):
            await each.close()


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def append(stores: Stores, upload_id: str, offset: int, data: bytes) -> Upload:
    return await stores.uploads.append(upload_id, Body(pieces=pieces(data), offset=offset))


async def check(stores: Stores, found: Upload, data: bytes = DATA) -> None:
    info = (await stores.view(found.store or "")).info
    assert (await assert_whole(stores, info))["file model.onnx"] == data


def test_gone_on_with_at_another(places: list[Storage]) -> None:
    async def run() -> None:
        async with replicas(places) as (one, other):
            found = await one.uploads.create(NewUpload(length=len(DATA), path="model.onnx"))
            for number, at in enumerate(range(0, len(DATA), 130_000)):
                found = await append((one, other)[number % 2], found.id, at, DATA[at : at + 130_000])
            assert (await one.uploads.get(found.id)).store == found.store
            await check(one, found)
            await check(other, found)
            assert (await upload(other, DATA)).store.id == found.store

    asyncio.run(run())


def test_a_writer_left_behind_at_another_adds_nothing(places: list[Storage]) -> None:
    async def run() -> None:
        async with replicas(places) as (one, other):
            found = await one.uploads.create(NewUpload(length=len(DATA), path="model.onnx"))
            hanging = asyncio.Event()

            async def slow() -> AsyncIterator[bytes]:
                yield DATA[:50_000]
                await hanging.wait()
                yield b"!" * (len(DATA) - 50_000)

            stale = asyncio.create_task(one.uploads.append(found.id, Body(pieces=slow(), offset=0)))
            await asyncio.sleep(0.01)
            offset = (await other.uploads.get(found.id)).offset
            found = await append(other, found.id, offset, DATA[offset:])
            hanging.set()
            with pytest.raises(Conflict):
                await stale
            await check(other, await other.uploads.get(found.id))

    asyncio.run(run())


def test_of_two_that_append_at_once_one_does(places: list[Storage]) -> None:
    async def run() -> None:
        async with replicas(places) as (one, other):
            for seed in range(3):
                sent = [onnx(200_000, seed=seed), onnx(200_000, seed=seed + 5)]
                assert len(sent[0]) == len(sent[1])
                found = await one.uploads.create(NewUpload(length=len(sent[0]), path="model.onnx"))
                results = await asyncio.gather(
                    append(one, found.id, 0, sent[0]), append(other, found.id, 0, sent[1]), return_exceptions=True
                )
                done = [result for result in results if isinstance(result, Upload)]
                assert len(done) == 1
                assert [result for result in results if not isinstance(result, ENDS)] == []
                found = await other.uploads.get(found.id)
                await check(other, found, sent[next(n for n in range(2) if isinstance(results[n], Upload))])

    asyncio.run(run())


def test_whole_at_two_at_once_is_one_store(places: list[Storage]) -> None:
    async def run() -> None:
        async with replicas(places) as (one, other):
            found = await one.uploads.create(NewUpload(path="model.onnx"))
            await append(one, found.id, 0, DATA)
            ends = [
                stores.uploads.append(found.id, Body(pieces=pieces(b""), offset=len(DATA), length=len(DATA)))
                for stores in (one, other)
            ]
            results = await asyncio.gather(*ends, return_exceptions=True)
            assert [result for result in results if not isinstance(result, ENDS)] == []
            for stores in (one, other):
                await check(stores, await stores.uploads.get(found.id))
            await asyncio.sleep(0.002)
            await collect_garbage(places[0], grace_seconds=0)
            await check(one, await one.uploads.get(found.id))

    asyncio.run(run())


@pytest.mark.parametrize("last", [True, False])
def test_another_replica_between_any_two_calls_of_a_request(last: bool) -> None:
    """The request joins small parts into larger ones; the other replica reads the upload, or continues it."""
    data = onnx(9000, seed=32)
    step = len(data) // 32

    async def at(number: int) -> bool:
        inner = MemoryStorage()
        told: list[object] = []

        async def meanwhile() -> None:
            try:
                found = await theirs.uploads.get(upload_id)
                if not last:
                    found = await append(theirs, upload_id, found.offset, data[found.offset : found.offset + step])
                told.append(found)
            except (Conflict, StorageUnavailable) as error:
                told.append(error)

        interruption = Interruption(meanwhile)
        database = InterruptedDatabase(catalogue_of(inner), interruption)
        storage = InterruptedStorage(inner, interruption)
        async with opened(storage, OPTIONS, database) as ours, opened(inner, OPTIONS) as theirs:
            upload_id = (await ours.uploads.create(NewUpload(length=len(data), path="model.onnx"))).id
            ends = [*range(step, (32 if last else 16) * step, step)]
            for begin, end in zip([0, *ends], ends, strict=False):
                await append(ours, upload_id, begin, data[begin:end])
            at = ends[-1]
            interruption.arm(number)
            with suppress(Conflict):
                await append(ours, upload_id, at, data[at:] if last else data[at : at + step])
            reached = interruption.reached
            interruption.arm(0)
            found = await ours.uploads.get(upload_id)
            if found.state == "open":
                found = await append(ours, upload_id, found.offset, data[found.offset :])
            await check(ours, found, data)
            await check(theirs, found, data)
            assert len(told) == reached
            return reached

    asyncio.run(at_every_call(at, 12))

"""Records of unfinished uploads: durable records have numbers at every replica, and readers wait for more."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption
from tests.support.stores import collect_garbage, opened, read, uploads_in
from tests.support.streams import FRAMED, example

from protoslice import _core
from protoslice.catalog.uploads import Upload, UploadTable
from protoslice.errors import Conflict, Gone, InvalidInput, LimitExceeded, StorageUnavailable, Unsupported
from protoslice.ingest.file_writer import BATCH
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import Stores
from protoslice.streams import open_records
from protoslice.uploads import ArrivingRequest, Body, NewUpload, UploadOptions, arriving, parts
from protoslice.uploads import append as appending
from protoslice.uploads.arriving import ArrivingIndex, ArrivingIndexes
from protoslice.views import records
from protoslice.views.records import RecordsRequest

T = TypeVar("T")
P = ParamSpec("P")

OPTIONS = StoreOptions(uploads=UploadOptions(part_bytes=5_000))
EXAMPLES = [example(n) for n in range(120)]


@pytest.fixture(params=["memory", "files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return a storage that replicas share."""
    return MemoryStorage() if request.param == "memory" else FileStorage(str(tmp_path))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "_PAUSE", 0.1)


def run(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on a separate loop."""

    @functools.wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return plain


async def begun(stores: Stores, path: str = "log.delimited") -> str:
    return (await stores.uploads.create(NewUpload(path=path))).id


async def append(stores: Stores, upload_id: str, offset: int, data: bytes, *, last: bool = False) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    await stores.uploads.append(upload_id, Body(pieces=pieces(), offset=offset, last=last))


async def given(
    stores: Stores,
    upload_id: str,
    after: int = 0,
    framing: str | None = "delimited",
    form: str = "delimited",
    wait: float = 0,
) -> tuple[list[bytes], int | None]:
    """Return the records of one answer, and the number to continue with."""
    request = ArrivingRequest(after, wait, framing, form)
    async with stores.uploads.arriving.after(upload_id, request) as found:
        data = await found.records.read(1 << 24)
        return list(open_records(data, "unknown", framing=form)), found.next


@pytest.mark.parametrize("framing", FRAMED)
@run
async def test_every_whole_record_that_is_durable_has_its_number_at_every_replica(
    storage: Storage, framing: str
) -> None:
    data, cuts = FRAMED[framing](EXAMPLES), random.Random(framing)
    ends = [len(FRAMED[framing](EXAMPLES[:n])) for n in range(len(EXAMPLES) + 1)]
    async with opened(storage, OPTIONS) as one, opened(storage, OPTIONS) as other:
        upload_id, offset, after = await begun(one), 0, 0
        while offset < len(data):
            size = min(cuts.randrange(1, 4000), len(data) - offset)
            await append(one, upload_id, offset, data[offset : offset + size], last=offset + size == len(data))
            offset += size
            whole = sum(end <= offset for end in ends[1:])
            for stores in (one, other):
                assert (await given(stores, upload_id, after, framing))[0] == EXAMPLES[after:whole]
            after = cuts.randrange(whole + 1)
        for form in FRAMED:
            assert await given(other, upload_id, 110, framing, form) == (EXAMPLES[110:], None)
        assert await given(other, upload_id, 120, framing) == ([], None)


@run
async def test_a_replica_that_comes_later_reads_everything_once_and_then_what_is_new() -> None:
    storage = Tallied(MemoryStorage())
    data = FRAMED["delimited"]([bytes([n]) * 1000 for n in range(250)] * 20)
    async with opened(storage, OPTIONS) as one, opened(storage, OPTIONS) as later:
        upload_id = await begun(one)
        await append(one, upload_id, 0, data)
        assert len((await given(later, upload_id, 4999))[0]) == 1
        await append(one, upload_id, len(data), FRAMED["delimited"]([b"new"]))
        storage.read = 0
        assert await given(later, upload_id, 5000) == ([b"new"], 5001)
        assert storage.read < 200_000


@run
async def test_a_reader_is_given_what_came_while_it_waited() -> None:
    storage = MemoryStorage()
    async with opened(storage, OPTIONS) as one, opened(storage, OPTIONS) as other:
        upload_id = await begun(one)
        waiting = [asyncio.create_task(given(other, upload_id, wait=30)) for _ in range(5)]
        await asyncio.sleep(0.05)
        await append(one, upload_id, 0, FRAMED["delimited"](EXAMPLES[:2]))
        assert [await each for each in waiting] == [(EXAMPLES[:2], 2)] * 5


@run
async def test_records_of_a_body_that_stands_still_are_readable_while_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appending, "CHECKPOINT_SECONDS", 0.01)
    monkeypatch.setattr(arriving, "_PAUSE", 0.005)
    storage = MemoryStorage()
    async with opened(storage, OPTIONS) as one, opened(storage, OPTIONS) as other:
        upload_id = await begun(one)

        async def read(after: int) -> tuple[list[bytes], int | None]:
            while True:
                with suppress(Conflict):  # parts were merged in between
                    return await given(other, upload_id, after, wait=5)

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(40):
                yield FRAMED["delimited"]([EXAMPLES[number]])
                assert await read(number) == ([EXAMPLES[number]], number + 1)
            assert len((await uploads_in(storage).read(upload_id)).parts) < 2 * parts.RUN

        await one.uploads.append(upload_id, Body(pieces=pieces(), offset=0, last=True))
        assert await given(other, upload_id) == (EXAMPLES[:40], None)


@run
async def test_a_checkpoint_that_fails_ends_the_request_and_what_was_recorded_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appending, "CHECKPOINT_SECONDS", 0.01)
    monkeypatch.setattr(arriving, "_PAUSE", 0.005)
    tried = asyncio.Event()

    async def failing(*_: object) -> None:
        tried.set()
        raise StorageUnavailable("the storage is away")

    async with opened(MemoryStorage(), OPTIONS) as stores:
        upload_id = await begun(stores)

        async def pieces() -> AsyncIterator[bytes]:
            yield FRAMED["delimited"](EXAMPLES[:1])
            await given(stores, upload_id, wait=5)
            monkeypatch.setattr(appending.Appender, "_land", failing)
            yield FRAMED["delimited"](EXAMPLES[1:2])
            await tried.wait()
            await asyncio.sleep(0)
            for record in EXAMPLES[2:]:
                yield FRAMED["delimited"]([record])
            raise AssertionError("the request went on")

        with pytest.raises(StorageUnavailable, match="away"):
            await stores.uploads.append(upload_id, Body(pieces=pieces(), offset=0, last=True))
        assert await given(stores, upload_id) == (EXAMPLES[:1], 1)


class StuckOnce(InterceptedStorage):
    """A storage whose first write of a batch never ends."""

    stuck = False

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        if name == "write" and not self.stuck:
            self.stuck = True
            await asyncio.Event().wait()
        return await call()


@run
async def test_a_checkpoint_that_waited_records_nothing_behind_a_batch_that_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appending, "CHECKPOINT_SECONDS", 0.01)
    data = random.Random(1).randbytes(3 * BATCH)
    async with opened(StuckOnce(MemoryStorage()), OPTIONS) as stores:
        upload_id = await begun(stores, "model.bin")

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(data), BATCH):
                yield data[at : at + BATCH]

        leaving = asyncio.create_task(stores.uploads.append(upload_id, Body(pieces=pieces(), offset=0, last=True)))
        await asyncio.sleep(0.1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert (await stores.uploads.get(upload_id)).offset == 0
        done = await stores.uploads.append(upload_id, Body(pieces=pieces(), offset=0, last=True))
        assert done.offset == len(data)


@run
async def test_readers_that_wait_share_their_looks_and_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    really, looked, woken, looks = ArrivingIndexes.of, UploadTable.epoch, list[str](), list[str]()

    async def of(self: ArrivingIndexes, upload: Upload, named: str | None) -> ArrivingIndex | None:
        woken.append(upload.id)
        return await really(self, upload, named)

    async def epoch(self: UploadTable, upload_id: str) -> int | None:
        looks.append(upload_id)
        return await looked(self, upload_id)

    monkeypatch.setattr(ArrivingIndexes, "of", of)
    monkeypatch.setattr(UploadTable, "epoch", epoch)
    async with opened(MemoryStorage(), OPTIONS) as stores:
        upload_id = await begun(stores)
        waiting = [asyncio.create_task(given(stores, upload_id, wait=1e9)) for _ in range(200)]
        await asyncio.sleep(0.1)
        looks.clear()
        await asyncio.sleep(0.35)
        assert 0 < len(looks) <= 5
        assert len(woken) == 200, "nobody is woken before there is more"
        for each in waiting:
            each.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*waiting, return_exceptions=True)
        )
        looks.clear()
        await asyncio.sleep(0.35)
        assert looks == []


@run
async def test_the_store_is_made_when_the_stream_ends_and_readers_are_told_so() -> None:
    async with opened(MemoryStorage(), OPTIONS) as stores:
        upload_id = await begun(stores)
        data = FRAMED["delimited"](EXAMPLES)
        await append(stores, upload_id, 0, data[:5000])
        assert (await given(stores, upload_id, 1000))[1] == 1000
        await append(stores, upload_id, 5000, data[5000:], last=True)
        assert await given(stores, upload_id, 90) == (EXAMPLES[90:], None)
        store = await stores.view((await stores.uploads.get(upload_id)).store or "")
        assert await (await records.one(store, 119, RecordsRequest(framing="delimited"))).read(1 << 20) == EXAMPLES[119]


@run
async def test_one_answer_is_bounded_and_a_long_record_comes_alone() -> None:
    all = [bytes(3_000_000), bytes(9_000_000), bytes(1), *[b""] * 200_000]
    async with opened(MemoryStorage()) as stores:
        upload_id = await begun(stores)
        await append(stores, upload_id, 0, FRAMED["delimited"](all))
        after, sizes, found = 0, [], list[bytes]()
        while len(found) < len(all):
            some, next = await given(stores, upload_id, after, form="u64be")
            sizes.append(len(some))
            found += some
            after = next or 0
        assert found == all
        assert sizes == [1, 1, 1 << 16, 1 << 16, 1 << 16, 200_001 - 3 * (1 << 16)]


@run
async def test_a_stream_that_outgrows_its_index_is_refused_to_readers_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endless stream takes the memory of one index; its sender continues, and no byte is lost."""
    monkeypatch.setattr(arriving, "_LIMITS", _core.Limits(records=300))
    data = FRAMED["delimited"]([bytes(number % 100) for number in range(1000)])
    async with opened(MemoryStorage(), OPTIONS) as stores:
        upload_id = await begun(stores)
        await append(stores, upload_id, 0, data[:5000])
        some, after = await given(stores, upload_id)
        assert len(some) > 50
        await append(stores, upload_id, 5000, data[5000:20_000])
        for _ in range(2):
            with pytest.raises(LimitExceeded, match="split the stream into shards"):
                await given(stores, upload_id, after or 0, wait=10)
        await append(stores, upload_id, 20_000, data[20_000:], last=True)
        store = await stores.view((await stores.uploads.get(upload_id)).store or "")
        assert await read(store.file(store.manifest.files[0].path)) == data


@run
async def test_a_framing_is_named_or_told_by_enough_bytes() -> None:
    async with opened(MemoryStorage()) as stores:
        upload_id = await begun(stores)
        assert await given(stores, upload_id, framing=None) == ([], 0)
        data = FRAMED["delimited"](EXAMPLES * 20)
        await append(stores, upload_id, 0, data[:3000])
        with pytest.raises(Unsupported, match="pass framing="):
            await given(stores, upload_id, framing=None)
        await append(stores, upload_id, 3000, data[3000:])
        assert (await given(stores, upload_id, 10, framing=None))[0] == (EXAMPLES * 20)[10:]
        with pytest.raises(InvalidInput, match="nknown framing"):
            await given(stores, upload_id, framing="csv")
        tfrecords = await begun(stores)
        await append(stores, tfrecords, 0, FRAMED["tfrecord"](EXAMPLES[:1]))
        assert await given(stores, tfrecords, framing=None) == (EXAMPLES[:1], 1)


@run
async def test_damage_ends_the_records_and_is_no_error_while_the_stream_goes_on() -> None:
    async with opened(MemoryStorage()) as stores:
        upload_id = await begun(stores)
        data = FRAMED["tfrecord"](EXAMPLES[:3])
        await append(stores, upload_id, 0, data + b"\x01" * 20 + data)
        assert await given(stores, upload_id, framing="tfrecord") == (EXAMPLES[:3], 3)
        assert await given(stores, upload_id, 3, framing="tfrecord") == ([], 3)


@run
async def test_an_upload_that_is_removed_ends_its_readers() -> None:
    async with opened(MemoryStorage(), OPTIONS) as stores:
        upload_id = await begun(stores)
        waiting = asyncio.create_task(given(stores, upload_id, wait=30))
        await asyncio.sleep(0.05)
        await stores.uploads.remove(upload_id)
        with pytest.raises(Gone):
            await waiting


@run
async def test_parts_that_are_merged_while_they_are_read_are_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "RUN", 3)
    inner, turns = MemoryStorage(), 0
    async with opened(inner, OPTIONS) as writer:
        for turn in range(1, 100):
            upload_id, size = await begun(writer), 0
            for record in (b"a", b"b"):
                await append(writer, upload_id, size, framed := FRAMED["delimited"]([record]))
                size += len(framed)
            last = (upload_id, size, FRAMED["delimited"]([b"c"]))

            async def merge(last: tuple[str, int, bytes] = last) -> None:
                await append(writer, *last)
                await collect_garbage(inner)  # without the delay that readers have

            interruption = Interruption(merge)
            database = InterruptedDatabase(catalogue_of(inner), interruption)
            async with opened(InterruptedStorage(inner, interruption), OPTIONS, database) as reader:
                interruption.arm(turn)
                try:
                    some, _ = await given(reader, upload_id)
                    assert some == [b"a", b"b", b"c"][: len(some)]
                    assert len(some) >= 2
                except Conflict:
                    turns += 1
                if not interruption.reached:
                    break
    assert turns


class Tallied(InterceptedStorage):
    """A storage that counts calls, and the bytes that are read."""

    calls = read = 0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        self.calls += 1
        found = await call()
        if name in {"get_range", "get_ranges"}:
            self.read += len(found) if isinstance(found, bytes) else sum(map(len, found))  # type: ignore[call-overload]
        return found

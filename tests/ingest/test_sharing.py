"""Stores share files: a new store refers to objects of other stores, and writes only new content."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, InterruptedStorage, Interruption
from tests.support.stores import (
    assert_tidy,
    assert_whole,
    collect_a_day_later,
    collect_everything,
    in_memory,
    in_time,
    keys_in,
    objects_in,
    onnx,
    opened,
    read,
    records_apart,
    upload,
    visible,
    written,
)

from protoslice.catalog.objects import Collected
from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded
from protoslice.serving import FileRef, StoreOptions
from protoslice.serving.finding import LEAST_FOUND
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.collection import collect_garbage as collect

MODEL, NOTES = onnx(2 << 20), b"notes\n" * 9
BIG = bytes(range(256)) * 8192
"""Two mebibytes: the size of a file that has an entry by its digest."""


def sha(data: bytes) -> str:
    """Return a SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


async def taken(stores: Stores, files: dict[str, FileRef], new: dict[str, bytes] | None = None) -> str:
    """Make a store from files of other stores and from new files; return its id."""
    async with await stores.ingest(IngestRequest()) as ingest:
        await ingest.take(files)
        for path, data in (new or {}).items():
            sink = await ingest.file(path)
            await sink.write(data)
            await sink.close()
        return (await ingest.commit()).store.id


async def collected(storage: Storage) -> list[str]:
    """Return the keys of the objects that remain after a collection a day later."""
    await collect_a_day_later(storage)
    return await objects_in(storage)


@pytest.mark.parametrize("apart", [False, True])
def test_sums_come_along_with_files_that_are_taken(apart: bool) -> None:
    """Checksums are in the manifest of the removed store, or in objects like those of large files."""

    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"a": BIG, "notes.txt": NOTES, "more.txt": NOTES * 2})).store.id
        refs = dict(await stores.files(first))
        found = await stores.files_by_digest.find(sha(BIG))
        assert found == refs["a"], "a file that is found by its digest has its sums too"
        second = await taken(stores, {"big": found, "notes.txt": refs["notes.txt"]}, {"new": b"new"})
        await stores.delete(first)
        left = await collected(storage)
        assert sum(key.endswith(".sums") for key in left) == (3 if apart else 0)
        async with opened(storage) as fresh:
            await assert_whole(fresh, (await visible(fresh))[second])
            key = next(found.location.keys)
            assert key in left
            await storage.put(ObjectKey(key), bytes(len(BIG)))
        async with opened(storage) as fresh:
            with pytest.raises(IntegrityError, match="checksum"):
                await read((await fresh.view(second)).file("big"))

    with records_apart() if apart else nullcontext():
        in_memory(work)


async def half_removed(stores: Stores) -> dict[str, FileRef]:
    """Return the files of a removed store; another store shares only `big`."""
    first = (await upload(stores, {"big": BIG, "model.onnx": MODEL})).store.id
    refs = dict(await stores.files(first))
    await taken(stores, {"big": refs["big"]})
    await stores.delete(first)
    return refs


async def test_a_commit_of_many_files_writes_the_one_that_is_new(stores: Stores, storage: Storage) -> None:
    old = {f"{n}.bin": bytes([n]) * n for n in range(100)}
    first = (await upload(stores, {"model.onnx": MODEL, "notes.txt": NOTES, **old})).store.id
    before = sum((await written(storage)).values())
    files = {path: ref for path, ref in (await stores.files(first)).items() if path != "notes.txt"}
    second = await taken(stores, files, {"notes.txt": b"new"})
    assert sum((await written(storage)).values()) - before == 3
    info = (await visible(stores))[second]
    await assert_whole(stores, info)
    assert info.root == "model.onnx"
    assert info.chunks == (await visible(stores))[first].chunks


async def test_a_store_of_taken_files_is_the_store_of_the_same_files_sent(stores: Stores) -> None:
    files = {"model.onnx": MODEL, "notes.txt": NOTES, "empty": b"", "words.json": b'{"a": 1}'}
    first = (await upload(stores, {**files, "more": b"x"})).store.id
    refs = {path: ref for path, ref in (await stores.files(first)).items() if path != "more"}
    second = await taken(stores, refs)
    sent = await upload(stores, files)
    assert (sent.store.id, sent.created) == (second, False)


@pytest.mark.parametrize("restored", [False, True])
async def test_files_stay_when_the_store_that_they_came_with_is_removed(
    stores: Stores, storage: Storage, restored: bool
) -> None:
    first = (await upload(stores, {"model.onnx": MODEL, "big": BIG, "notes.txt": NOTES})).store.id
    refs = await stores.files(first)
    second = await taken(stores, {"big": refs["big"]}, {"new": b"new"})
    await stores.delete(first)
    if restored:
        await stores.restore(first)
        await stores.delete(first)
    left = await collected(storage)
    assert {*left} > {*refs["big"].location.keys}
    assert len(left) == 2, "what is shared, and what is new"
    assert await read((await stores.view(second)).file("big")) == BIG
    assert await in_time(storage) == [second]
    assert await stores.files_by_digest.find(sha(BIG)) == refs["big"], "its store is gone, and its objects are not"
    assert await stores.files_by_digest.find(sha(MODEL)) is None
    await stores.delete(second)
    assert await collected(storage) == []
    assert await keys_in(storage) == ["protoslice.json"]


async def test_a_commit_that_comes_too_late_for_one_of_several_files_is_refused(
    stores: Stores, storage: Storage
) -> None:
    first = (await upload(stores, {"big": BIG, "model.onnx": MODEL})).store.id
    refs = await stores.files(first)
    await taken(stores, {"big": refs["big"]})
    async with await stores.ingest(IngestRequest()) as late:
        await late.take({"model.onnx": refs["model.onnx"]})
        await stores.delete(first)
        with catalogue_of(storage).at(a_day_later):
            await collect(storage, stores.database)  # the bytes stay for readers
        with pytest.raises(Collected):
            await late.commit()
    assert len(await visible(stores)) == 1
    async with await stores.ingest(IngestRequest()) as later:
        await later.take({"model.onnx": refs["model.onnx"]})
        with pytest.raises(Collected):
            await later.commit()
    again = await taken(stores, {"other": refs["big"]})
    await collected(storage)
    await assert_whole(stores, (await visible(stores))[again])


async def test_a_file_is_found_by_its_digest(stores: Stores) -> None:
    assert await stores.files_by_digest.find(sha(BIG)) is None
    first = (await upload(stores, {"big": BIG, "notes.txt": NOTES})).store.id
    found = await stores.files_by_digest.find(sha(BIG))
    assert found == (await stores.files(first))["big"]
    assert await stores.files_by_digest.find(sha(NOTES)) is None, f"it has less than {LEAST_FOUND} bytes"
    with pytest.raises(InvalidInput, match="64 hex digits"):
        await stores.files_by_digest.find("../" + sha(BIG))


async def test_a_damaged_store_finds_nothing_and_hides_no_other(stores: Stores, storage: Storage) -> None:
    first = (await upload(stores, {"big": BIG})).store.id
    second = await taken(stores, {"same": (await stores.files(first))["big"]})
    sql = "UPDATE stores SET manifest = :data WHERE digest = :store"
    async with opened(storage) as fresh:
        await stores.database.write(lambda tx: tx.run(sql, data=b"{}", store=second))
        assert await fresh.files_by_digest.find(sha(BIG)) == (await stores.files(first))["big"]
        await stores.database.write(lambda tx: tx.run(sql, data=b"{}", store=first))
    async with opened(storage) as fresh:
        assert await fresh.files_by_digest.find(sha(BIG)) is None


def test_taken_files_count_like_sent_ones() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        refs = await stores.files((await upload(stores, {"big": BIG})).store.id)
        async with await stores.ingest(IngestRequest()) as ingest:
            with pytest.raises(LimitExceeded, match="'b'"):
                await ingest.take({"a": refs["big"], "b": refs["big"]})

    in_memory(work, StoreOptions(max_upload_bytes=3 << 20))


def collected_and_committed(collecting: Callable[[Storage, Act], Awaitable[bool]]) -> None:
    """Run a collection and a commit that takes a removed store's file, each in the middle of the other.

    Another store shares one of the removed store's files, but that file is not enough to keep the rest.
    """

    async def at(number: int) -> tuple[bool, bool]:
        inner = MemoryStorage()
        async with opened(inner) as stores:
            refs = await half_removed(stores)
            made: list[str] = []
            reached = await collecting(inner, Act(number, stores, refs["model.onnx"], made))
            found = await visible(stores)
            assert len(found) == 1 + len(made), f"call {number}"
            for info in found.values():
                await assert_whole(stores, info)
        await collect_everything(inner)
        await assert_tidy(inner)
        return reached, bool(made)

    async def run() -> None:
        outcomes: list[tuple[bool, bool]] = []
        while not outcomes or outcomes[-1][0]:
            outcomes.append(await at(len(outcomes) + 1))
        assert len({made for _, made in outcomes}) == 2, "the collector always won, or the writer did"

    asyncio.run(run())


@dataclass(frozen=True)
class Act:
    """A commit, and the number of the call before which the commit or the collection runs."""

    number: int
    stores: Stores
    ref: FileRef
    made: list[str]

    async def commit(self, stores: Stores | None = None) -> None:
        """Take the file; record the store if there is one."""
        async with await (stores or self.stores).ingest(IngestRequest()) as ingest:
            with suppress(Conflict):
                await ingest.take({"late.onnx": self.ref})
                self.made.append((await ingest.commit()).store.id)


def test_a_commit_between_any_two_calls_of_a_collection_is_refused_or_whole() -> None:
    async def collecting(inner: Storage, act: Act) -> bool:
        interruption = Interruption(act.commit)
        interruption.arm(act.number)
        with catalogue_of(inner).at(a_day_later):
            await collect(
                InterruptedStorage(inner, interruption),
                InterruptedDatabase(catalogue_of(inner), interruption),
                delay_seconds=0,
            )
        if not interruption.reached:
            await act.commit()
        return interruption.reached

    collected_and_committed(collecting)


def test_a_collection_between_any_two_calls_of_a_commit_lets_it_be_refused_or_whole() -> None:
    async def collecting(inner: Storage, act: Act) -> bool:
        interruption = Interruption(lambda: collect_a_day_later(inner))
        database = InterruptedDatabase(catalogue_of(inner), interruption)
        async with opened(InterruptedStorage(inner, interruption), database=database) as stores:
            interruption.arm(act.number)
            await act.commit(stores)
        return interruption.reached

    collected_and_committed(collecting)


def a_day_later() -> float:
    """Return a time at which a removed store is collected."""
    return time.time() + 90_000

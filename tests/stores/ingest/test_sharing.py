"""Stores share files: a new store names objects that others have, and writes what is new alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import pytest
from tests.support.interrupted import InterruptedStorage
from tests.support.stores import (
    assert_whole,
    collect_a_day_later,
    in_memory,
    in_time,
    keys_in,
    onnx,
    opened,
    read,
    records_apart,
    upload,
    visible,
)

from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.stores import FileRef, IngestRequest, StoreOptions, Stores
from protoslice.stores.catalog.claims import Claims, Collected
from protoslice.stores.catalog.files import LEAST_FOUND, FilesByDigest
from protoslice.stores.catalog.upgrade import upgrade
from protoslice.stores.ingest.abandoned import drop_outrun
from protoslice.stores.layout import keys

MODEL, NOTES = onnx(2 << 20), b"notes\n" * 9
BIG = bytes(range(256)) * 8192
"""Two mebibytes: the size of a file that has an entry by its digest."""


def sha(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


async def taken(stores: Stores, files: dict[str, FileRef], new: dict[str, bytes] | None = None) -> str:
    """Id of a store of files that other stores have, and of new ones."""
    async with await stores.ingest(IngestRequest()) as ingest:
        await ingest.take(files)
        for path, data in (new or {}).items():
            sink = await ingest.file(path)
            await sink.write(data)
            await sink.close()
        return (await ingest.commit()).store.id


async def written(storage: Storage) -> int:
    """Bytes of all objects that hold files."""
    return sum([item.size async for item in storage.iterate(keys.OBJECTS) if item.key.segments[-1].startswith("file-")])


async def collected(storage: Storage, times: int = 3) -> list[str]:
    """Keys of the objects that are left after some collections, without notes."""
    for _ in range(times):
        await collect_a_day_later(storage)
    return [key for key in await keys_in(storage, "objects") if not keys.is_note(ObjectKey(key))]


@pytest.mark.parametrize("apart", [False, True])
def test_sums_come_along_with_files_that_are_taken(apart: bool) -> None:
    """Sums lie in the manifest of the store that is gone, or are objects, as older programs wrote."""

    async def work(stores: Stores, storage: Storage) -> None:
        with records_apart() if apart else nullcontext():
            first = (await upload(stores, {"a": BIG, "notes.txt": NOTES, "more.txt": NOTES * 2})).store.id
        refs = dict(await stores.files(first))
        found = await FilesByDigest(stores.storage).find(sha(BIG))
        assert found == refs["a"], "entries by digest have the sums too"
        second = await taken(stores, {"big": found, "notes.txt": refs["notes.txt"]}, {"new": b"new"})
        await stores.delete(first)
        left = await collected(storage)
        assert sum(key.endswith(".sums") for key in left) == (2 if apart else 0)
        async with opened(storage) as fresh:
            await assert_whole(fresh, (await visible(fresh))[second])
            await storage.put(ObjectKey(next(key for key in left if key.endswith("/file-0"))), bytes(len(BIG)))
        async with opened(storage) as fresh:
            with pytest.raises(IntegrityError, match="checksum"):
                await read((await fresh.view(second)).file("big"))

    in_memory(work)


async def half_removed(stores: Stores) -> dict[str, FileRef]:
    """Files of a store that is removed, of which another one shares `big` alone."""
    first = (await upload(stores, {"big": BIG, "model.onnx": MODEL})).store.id
    refs = dict(await stores.files(first))
    await taken(stores, {"big": refs["big"]})
    await stores.delete(first)
    return refs


def test_a_commit_of_many_files_writes_the_one_that_is_new() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        old = {f"{n}.bin": bytes([n]) * n for n in range(100)}
        first = (await upload(stores, {"model.onnx": MODEL, "notes.txt": NOTES, **old})).store.id
        before = await written(storage)
        files = {path: ref for path, ref in (await stores.files(first)).items() if path != "notes.txt"}
        second = await taken(stores, files, {"notes.txt": b"new"})
        assert await written(storage) - before == 3
        info = (await visible(stores))[second]
        await assert_whole(stores, info)
        assert info.root == "model.onnx"
        assert info.chunks == (await visible(stores))[first].chunks

    in_memory(work)


def test_a_store_of_taken_files_is_the_store_of_the_same_files_sent() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        files = {"model.onnx": MODEL, "notes.txt": NOTES, "empty": b"", "words.json": b'{"a": 1}'}
        first = (await upload(stores, {**files, "more": b"x"})).store.id
        refs = {path: ref for path, ref in (await stores.files(first)).items() if path != "more"}
        second = await taken(stores, refs)
        sent = await upload(stores, files)
        assert (sent.store.id, sent.created) == (second, False)

    in_memory(work)


@pytest.mark.parametrize("restored", [False, True])
def test_files_stay_when_the_store_that_they_came_with_is_removed(restored: bool) -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"model.onnx": MODEL, "big": BIG, "notes.txt": NOTES})).store.id
        refs = await stores.files(first)
        second = await taken(stores, {"big": refs["big"]}, {"new": b"new"})
        await stores.delete(first)
        if restored:
            await stores.restore(first)
            await stores.delete(first)
        left = [key.rpartition("/")[2] for key in await collected(storage)]
        assert left == ["file-1"] * 2, "what is shared, and what is new"
        assert await read((await stores.view(second)).file("big")) == BIG
        assert await in_time(storage) == [second]
        assert await FilesByDigest(stores.storage).find(sha(BIG)) == refs["big"], (
            "its store is gone, and its objects are not"
        )
        assert await FilesByDigest(stores.storage).find(sha(MODEL)) is None
        await stores.delete(second)
        assert await collected(storage) == []
        assert await keys_in(storage) == ["protoslice.json"]

    in_memory(work)


def test_a_removed_store_whose_objects_were_let_go_does_not_come_back() -> None:
    """Somebody who has read the tombstone in time publishes it when a collector is done with it."""

    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"big": BIG, "model.onnx": MODEL})).store.id
        manifest = (await stores.view(first)).manifest
        second = await taken(stores, {"big": (await stores.files(first))["big"]})
        await stores.delete(first)
        await collected(storage)
        with pytest.raises(Collected):
            await stores._manifests.publish(manifest)
        assert {*await visible(stores)} == {second}
        await collected(storage)
        assert await in_time(storage) == [second]

    in_memory(work)


def test_a_commit_that_comes_too_late_for_one_of_several_files_is_refused() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"big": BIG, "model.onnx": MODEL})).store.id
        refs = await stores.files(first)
        await taken(stores, {"big": refs["big"]})
        async with await stores.ingest(IngestRequest()) as late:
            await late.take({"model.onnx": refs["model.onnx"]})
            await stores.delete(first)
            await collected(storage)
            with pytest.raises(Collected):
                await late.commit()
        async with await stores.ingest(IngestRequest()) as later:
            with pytest.raises(Collected):
                await later.take({"model.onnx": refs["model.onnx"]})
        again = await taken(stores, {"other": refs["big"]})
        await collected(storage)
        await assert_whole(stores, (await visible(stores))[again])

    in_memory(work)


def test_a_writer_that_died_when_it_was_too_late_leaves_no_store() -> None:
    """The manifest names an object that is gone, in an attempt that another store needs."""

    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"big": BIG, "model.onnx": MODEL})).store.id
        refs = await stores.files(first)
        kept = await taken(stores, {"big": refs["big"]})
        lost = await taken(stores, {"model.onnx": refs["model.onnx"]})
        await stores.delete(first)
        # As before it was published, by a writer who shows signs of life: its own attempt stays.
        own = (await stores.view(lost)).manifest.attempt
        late = [ObjectKey(key) for key in await keys_in(storage) if lost in key or f"/{own}/" in key]
        records = {key: await storage.get_range(key, 0, (await storage.stat(key)).size) for key in late}
        for key in late:
            await storage.delete(key)
        assert len(await collected(storage, 1)) == 1, "what is shared"
        for key, data in records.items():
            await storage.put(key, data)
        await collected(storage)
        assert {*await visible(stores)} == {kept}

    in_memory(work)


def test_an_upload_that_was_outrun_leaves_objects_that_others_share() -> None:
    """The manifest was there for a while: the answer was lost, and another upload came in its place."""

    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"big": BIG})).store.id
        manifest = (await stores.view(first)).manifest
        second = await taken(stores, {"same": (await stores.files(first))["big"]})
        await stores.delete(first)
        await upload(stores, {"big": BIG})
        await drop_outrun(storage, Claims(storage), manifest)
        await assert_whole(stores, (await visible(stores))[second])

    in_memory(work)


def test_a_file_is_found_by_its_digest() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        assert await FilesByDigest(stores.storage).find(sha(BIG)) is None
        first = (await upload(stores, {"big": BIG, "notes.txt": NOTES})).store.id
        found = await FilesByDigest(stores.storage).find(sha(BIG))
        assert found == (await stores.files(first))["big"]
        assert await FilesByDigest(stores.storage).find(sha(NOTES)) is None, f"it has less than {LEAST_FOUND} bytes"
        with pytest.raises(InvalidInput, match="64 hex digits"):
            await FilesByDigest(stores.storage).find("../" + sha(BIG))

    in_memory(work)


@pytest.mark.parametrize("content", [b"", b"{}", b"null"])
def test_a_damaged_entry_finds_nothing_and_is_collected_once_its_store_is_gone(content: bytes) -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"big": BIG})).store.id
        (entry,) = await keys_in(storage, "indexes/file")
        await storage.put(ObjectKey(entry), content)
        assert await FilesByDigest(stores.storage).find(sha(BIG)) is None
        await stores.delete(first)
        await collected(storage)
        assert await keys_in(storage, "indexes") == []

    in_memory(work)


def test_taken_files_count_like_sent_ones() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        refs = await stores.files((await upload(stores, {"big": BIG})).store.id)
        async with await stores.ingest(IngestRequest()) as ingest:
            with pytest.raises(LimitExceeded, match="'b'"):
                await ingest.take({"a": refs["big"], "b": refs["big"]})

    in_memory(work, StoreOptions(max_upload_bytes=3 << 20))


def test_a_file_that_is_found_is_that_of_its_digest() -> None:
    """An entry is sealed: nobody gets other bytes by a damaged one."""

    async def work(stores: Stores, storage: Storage) -> None:
        await upload(stores, {"big": BIG})
        (entry,) = [ObjectKey(key) for key in await keys_in(storage, "indexes/file")]
        data = await storage.get_range(entry, 0, (await storage.stat(entry)).size)
        raw = json.loads(data[:-65])
        await storage.put(entry, json.dumps(raw | {"size": 7}).encode() + data[-65:])
        assert await FilesByDigest(stores.storage).find(sha(BIG)) is None

    in_memory(work)


def collected_and_committed(collecting: Callable[[Storage, Act], Awaitable[bool]]) -> None:
    """A collection and a commit that takes a file of a removed store, each in the midst of the other."""

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
            return reached, bool(made)

    async def run() -> None:
        outcomes: list[tuple[bool, bool]] = []
        while not outcomes or outcomes[-1][0]:
            outcomes.append(await at(len(outcomes) + 1))
        assert len({made for _, made in outcomes}) == 2, "the collector always won, or the writer did"

    asyncio.run(run())


@dataclass(frozen=True)
class Act:
    """A commit, and the number of the call before which it or the collection comes."""

    number: int
    stores: Stores
    ref: FileRef
    made: list[str]

    async def commit(self, stores: Stores | None = None) -> None:
        """Take the file; note the store if there is one."""
        async with await (stores or self.stores).ingest(IngestRequest()) as ingest:
            with suppress(Conflict):
                await ingest.take({"late.onnx": self.ref})
                self.made.append((await ingest.commit()).store.id)


def test_a_commit_between_any_two_calls_of_a_collection_is_refused_or_whole() -> None:
    async def collecting(inner: Storage, act: Act) -> bool:
        storage = InterruptedStorage(inner, act.commit)
        storage.arm(act.number)
        await collect_a_day_later(storage)
        if not storage.reached:
            await act.commit()
        return storage.reached

    collected_and_committed(collecting)


def test_a_collection_between_any_two_calls_of_a_commit_lets_it_be_refused_or_whole() -> None:
    async def collecting(inner: Storage, act: Act) -> bool:
        storage = InterruptedStorage(inner, lambda: collect_a_day_later(inner))
        async with opened(storage) as stores:
            storage.arm(act.number)
            await act.commit(stores)
        return storage.reached

    collected_and_committed(collecting)


def test_an_upgrade_makes_the_entries_of_files_anew() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        first = (await upload(stores, {"big": BIG, "notes.txt": NOTES})).store.id
        second = await taken(stores, {"same": (await stores.files(first))["big"]})
        for key in await keys_in(storage, "indexes"):
            await storage.delete(ObjectKey(key))
        assert await FilesByDigest(stores.storage).find(sha(BIG)) is None
        await upgrade(storage)
        assert await FilesByDigest(stores.storage).find(sha(BIG)) == (await stores.files(second))["same"]

    in_memory(work)

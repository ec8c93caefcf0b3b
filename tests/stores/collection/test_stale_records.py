"""Small records that nothing agrees with go; those of a writer at work stay.

That holds for every grace, however short.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest
from tests.support.interrupted import InterruptedStorage, at_every_call
from tests.support.stores import (
    assert_whole,
    collect_a_day_later,
    collect_garbage,
    in_memory,
    keys_in,
    onnx,
    open_stores,
    opened,
    some,
    upload,
    visible,
)

from protoslice.errors import Conflict, NotFound, StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.collection.stale_records import SETTLED_SECONDS
from protoslice.stores.layout.indexes import IndexEntry

T = TypeVar("T")


class Halted(InterceptedStorage):
    """Stops before the call of a method on a key of a folder, until it may go on."""

    def __init__(self, inner: Storage, method: str, folder: str) -> None:
        super().__init__(inner)
        self.stopped = asyncio.Event()
        self.go_on = asyncio.Event()
        self._place = method, folder

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        if key is not None and (name, key.segments[0]) == self._place:
            self.stopped.set()
            await self.go_on.wait()
        return await call()


class Broken(MemoryStorage):
    """Fails to write tags while `broken`."""

    broken = False

    async def put(self, key: ObjectKey, data: bytes | bytearray | memoryview, *, if_etag: str | None = None) -> str:
        self._check(key)
        return await super().put(key, data, if_etag=if_etag)

    async def put_if_absent(self, key: ObjectKey, data: bytes | bytearray | memoryview) -> str:
        self._check(key)
        return await super().put_if_absent(key, data)

    def _check(self, key: ObjectKey) -> None:
        if self.broken and key.segments[0] == "tags":
            raise StorageUnavailable("it did not happen")


def test_a_store_that_is_published_while_a_collector_is_at_work_is_listed() -> None:
    """The collector begins when the entries are there and the manifest is not.

    The collector stands still before any one of its calls.
    """

    async def at(number: int) -> tuple[bool, bool]:
        inner = MemoryStorage()
        halted = Halted(inner, "put_if_absent", "stores")
        async with opened(halted) as writer, opened(inner) as readers:
            sending = asyncio.create_task(upload(writer, onnx(90_000)))
            await halted.stopped.wait()

            async def finish() -> None:
                halted.go_on.set()
                with suppress(Conflict):
                    await sending

            storage = InterruptedStorage(inner, finish)
            async with opened(storage) as collector:
                await asyncio.sleep(0.002)
                storage.arm(number)
                await collector.collect_garbage(grace_seconds=0)
            await finish()
            refused = sending.exception() is not None
            found = await visible(readers)
            assert len(found) == (0 if refused else 1), f"call {number}: there, and not listed"
            for info in found.values():
                await assert_whole(readers, info)
                assert (await readers.list(type=info.type)).items == [info]
            return storage.reached, refused

    async def run() -> None:
        outcomes: list[tuple[bool, bool]] = []
        while not outcomes or outcomes[-1][0]:
            outcomes.append(await at(len(outcomes) + 1))
        assert len({refused for _, refused in outcomes}) == 2, "the collector always won, or the writer did"

    asyncio.run(run())


def test_a_tag_that_is_set_while_garbage_is_collected_is_shown_with_its_store() -> None:
    async def run() -> None:
        inner = MemoryStorage()
        halted = Halted(inner, "put_if_absent", "tags")
        async with opened(halted) as writer, opened(inner) as others:
            (one,) = await some(others, 1)
            setting = asyncio.create_task(writer.put_tag("a", one))
            await halted.stopped.wait()
            await asyncio.sleep(0.002)
            await others.collect_garbage(grace_seconds=0)
            halted.go_on.set()
            await setting
            assert (await others.get(one)).tags == ("a",)

    asyncio.run(run())


def test_a_collector_leaves_the_probe_of_a_replica_that_starts() -> None:
    async def run() -> None:
        inner = MemoryStorage()
        halted = Halted(inner, "list", "probe")
        async with opened(inner) as others:
            starting = asyncio.create_task(open_stores(halted))
            await halted.stopped.wait()
            await asyncio.sleep(0.002)
            await others.collect_garbage(grace_seconds=0)
            halted.go_on.set()
            started = await starting
            await upload(started, onnx(10))
            await started.close()

    asyncio.run(run())


async def removed_by_half(stores: Stores, storage: Broken) -> str:
    """Id of a store removed by a replica that failed before it removed the tags `a` and `b`."""
    one, two = await some(stores, 2)
    for name in ("a", "b"):
        await stores.put_tag(name, one)
    await stores.put_tag("c", two)
    storage.broken = True
    with pytest.raises(StorageUnavailable):
        await stores.delete(one)
    storage.broken = False
    assert [tag.name for tag in (await stores.tags()).items] == ["a", "b", "c"]
    return one


def on_broken(work: Callable[[Stores, Broken], Awaitable[None]]) -> None:
    """Do `work` on new stores."""

    async def run() -> None:
        storage = Broken()
        async with opened(storage) as stores:
            await work(stores, storage)

    asyncio.run(run())


def test_removing_again_ends_a_removal_that_broke_off() -> None:
    async def work(stores: Stores, storage: Broken) -> None:
        one = await removed_by_half(stores, storage)
        assert (await stores.delete(one)).tags == ("a", "b")
        assert [tag.name for tag in (await stores.tags()).items] == ["c"]
        with pytest.raises(NotFound):
            await stores.delete(one)

    on_broken(work)


def test_a_collector_removes_tags_that_a_broken_removal_left() -> None:
    async def work(stores: Stores, storage: Broken) -> None:
        await removed_by_half(stores, storage)
        await stores.collect_garbage()
        assert [tag.name for tag in (await stores.tags()).items] == ["a", "b", "c"], "it may be restored"
        await collect_a_day_later(storage)
        assert [tag.name for tag in (await stores.tags()).items] == ["c"]
        assert [key.rpartition("/")[2] for key in await keys_in(storage, "indexes/tag")] == ["c"]

    on_broken(work)


def test_a_tag_that_is_set_anew_is_no_leftover() -> None:
    """The store comes again, with its tag, between the collector's look at the tag and its removal."""

    async def at(number: int) -> bool:
        storage = Broken()
        async with opened(storage) as stores:
            one = await removed_by_half(stores, storage)

            async def send_again() -> None:
                assert (await upload(stores, onnx(10, seed=0))).store.id == one
                await stores.put_tag("a", one)

            around = InterruptedStorage(storage, send_again)
            around.arm(number)
            await collect_a_day_later(around)
            if around.reached:
                assert (await stores.get(one)).tags[0] == "a"
                assert (await stores.tag("a")).store == one
            return around.reached

    asyncio.run(at_every_call(at, 20))


def test_restoring_takes_over_tags_that_a_broken_removal_left() -> None:
    async def work(stores: Stores, storage: Broken) -> None:
        one = await removed_by_half(stores, storage)
        restored = await stores.restore(one)
        assert (restored.store.tags, restored.tags_taken) == (("a", "b"), ())

    on_broken(work)


def test_entries_of_stores_that_are_gone_go_with_their_objects() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        one, two = await some(stores, 2)
        await stores.delete(one)
        await collect_garbage(storage, grace_seconds=3600)
        assert len(await keys_in(storage, "indexes")) == 4 + 2, "they may be restored; one has marks"
        await collect_a_day_later(storage)
        assert {IndexEntry.parse(ObjectKey(key)).store for key in await keys_in(storage, "indexes")} == {two}
        assert await keys_in(storage, "removed") == []

    in_memory(work)


def test_old_marks_and_probes_go() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        await storage.put(ObjectKey("probe/old"), b"x")
        await storage.put(ObjectKey("tags/old"), b"removed 0123456789abcdef")
        for seconds, left in ((SETTLED_SECONDS - 5, 2), (SETTLED_SECONDS + 5, 0)):
            await collect_garbage(storage, grace_seconds=0, clock=lambda: time.time() + seconds)  # noqa: B023
            assert len(await keys_in(storage, "probe") + await keys_in(storage, "tags")) == left

    in_memory(work)


@pytest.mark.parametrize("sent_again", [False, True])
def test_a_tag_that_was_set_after_its_entry_was_collected_is_noted_or_removed(sent_again: bool) -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store = (await upload(stores, onnx(9000), IngestRequest(tags=("late",)))).store.id
        held = await stores._manifests.get(store)
        await stores.delete(store)
        await collect_garbage(storage, grace_seconds=0, clock=lambda: time.time() + SETTLED_SECONDS + 5)
        assert await keys_in(storage, "indexes/tag") == []
        await Tags(storage).put("late", held, if_match=None, if_none_match=False)  # by one who stood still
        if sent_again:
            await upload(stores, onnx(9000))
        await collect_garbage(storage, grace_seconds=0, clock=lambda: time.time() + SETTLED_SECONDS - 5)
        assert (await stores.tag("late")).store == store, "its writer may be about to note it"
        await collect_garbage(storage, grace_seconds=0, clock=lambda: time.time() + SETTLED_SECONDS + 5)
        if sent_again:
            assert (await stores.get(store)).tags == ("late",)
            assert [info.tags for info in (await stores.list()).items] == [("late",)]
        else:
            with pytest.raises(NotFound):
                await stores.tag("late")

    in_memory(work)

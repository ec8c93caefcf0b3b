"""Tags that show that objects of their store stay, and cases in which nobody may believe them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from tests.support.stores import assert_whole, collect_garbage, keys_in, onnx, opened, upload

from protoslice.errors import Conflict
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.catalog.upgrade import upgrade
from protoslice.stores.collection.stale_records import SETTLED_SECONDS

T = TypeVar("T")

CONTENT = onnx(9000)
TOLD = hashlib.sha256(CONTENT).digest()


class Halting(InterceptedStorage):
    """Halts before a call until it may go on."""

    def __init__(self, inner: MemoryStorage) -> None:
        super().__init__(inner)
        self._at: tuple[str, str] | None = None
        self.halted = asyncio.Event()
        self.goes_on = asyncio.Event()

    def halt(self, name: str, folder: str) -> None:
        """Halt before the next call of this method in a folder."""
        self._at = name, folder

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        if key is not None and self._at == (name, key.segments[0]):
            self._at = None
            self.halted.set()
            await self.goes_on.wait()
        return await call()


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[MemoryStorage, Stores, Halting, Stores]]:
    """A storage, stores over it, and stores over the same by calls that halt."""
    storage = MemoryStorage()
    halting = Halting(storage)
    async with opened(storage) as ours, opened(halting) as theirs:
        yield storage, ours, halting, theirs


async def collected(ours: Stores) -> None:
    """Collect all that may go; what was just written is older than nothing a moment later."""
    await asyncio.sleep(0.002)
    await ours.collect_garbage(grace_seconds=0)


async def tag_late(halting: Halting, theirs: Stores, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Send content that is there with a tag, which is set after `meanwhile`."""
    halting.halt("put_if_absent", "tags")
    sending = asyncio.create_task(upload(theirs, CONTENT, IngestRequest(tags=("late",)), expected_sha256=TOLD))
    await halting.halted.wait()
    await meanwhile()
    halting.goes_on.set()
    assert not (await sending).created


async def assert_comes_again(ours: Stores) -> None:
    """Send content that is not there: no tag makes the service answer with its store."""
    made = await upload(ours, CONTENT, expected_sha256=TOLD)
    await assert_whole(ours, made.store)


def test_a_store_whose_restorer_died_is_not_shown_to_last_by_a_tag_that_was_set_late() -> None:
    async def run() -> None:
        async with replicas() as (storage, ours, halting, theirs), opened(dying := Halting(storage)) as restorer:
            store = (await upload(ours, CONTENT)).store.id

            async def meanwhile() -> None:
                await ours.delete(store)
                dying.halt("put_if_absent", "stores")
                restoring = asyncio.create_task(restorer.restore(store))
                await dying.halted.wait()
                await collected(ours)
                dying.halt("get_range", "objects")  # before it looks at the claims, for ever
                dying.halted.clear()
                dying.goes_on.set()
                dying.goes_on = asyncio.Event()
                await dying.halted.wait()
                restoring.cancel()

            await tag_late(halting, theirs, meanwhile)
            assert (await ours.tag("late")).store == store
            assert (await ours.get(store)).tags == ("late",), "the manifest is there, and its objects are not"
            await assert_comes_again(ours)

    asyncio.run(run())


class Denying(InterceptedStorage):
    """Tells the writer of a manifest that somebody was first, when it was the writer itself."""

    denies = True

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        result = await call()
        if self.denies and key is not None and (name, key.segments[0]) == ("put_if_absent", "stores"):
            self.denies = False
            await self.meanwhile()
            raise Conflict("somebody else was first")
        return result

    async def meanwhile(self) -> None:
        """Happens between the write and its answer."""


def test_a_manifest_that_is_written_once_more_is_not_shown_to_last_by_a_tag() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        denying = Denying(storage)
        async with opened(storage) as ours, opened(denying) as theirs:

            async def meanwhile() -> None:
                found = (await upload(ours, CONTENT, expected_sha256=TOLD)).store.id
                await ours.delete(found)

            denying.meanwhile = meanwhile  # type: ignore[method-assign]
            made = await upload(theirs, CONTENT, IngestRequest(tags=("a",)))
            assert made.created
            manifest = await ours._manifests.get(made.store.id)
            assert not (await ours.tag("a")).shows_lasting(manifest)
            assert (await ours.tag("a")).attempt == manifest.attempt

    asyncio.run(run())


def test_a_tag_of_another_attempt_shows_nothing() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as ours:
            store = (await upload(ours, CONTENT, IngestRequest(tags=("a",)))).store.id
            before = await ours.tag("a")
            await ours.delete(store)
            assert (await upload(ours, CONTENT)).store.id == store
            manifest = await ours._manifests.get(store)
            assert before.store == store
            assert not before.shows_lasting(manifest)
            tag, _ = await ours.put_tag("a", store)
            assert (await ours.tag("a")).shows_lasting(manifest)
            assert tag.store == store

    asyncio.run(run())


def test_tags_of_an_upgraded_storage_show_nothing() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as ours:
            store = (await upload(ours, CONTENT, IngestRequest(tags=("a",)))).store.id
        await upgrade(storage)
        async with opened(storage) as ours:
            assert (await ours.tag("a")).attempt is None
            made = await upload(ours, CONTENT, expected_sha256=TOLD)
            assert (made.created, made.store.id, made.store.tags) == (False, store, ("a",))

    asyncio.run(run())


def test_a_manifest_that_a_mender_puts_back_is_not_shown_to_last_by_a_tag() -> None:
    async def run() -> None:
        async with replicas() as (storage, ours, halting, theirs):
            store = (await upload(ours, CONTENT, IngestRequest(tags=("a",)))).store.id
            before = await ours._manifests.get(store)
            await storage.delete(ObjectKey(f"objects/{before.attempt}/file-0"))
            halting.halt("put", "stores")  # the mender stands still before it replaces what is damaged
            mending = asyncio.create_task(upload(theirs, CONTENT))
            await halting.halted.wait()
            await collected(ours)
            halting.goes_on.set()
            with pytest.raises(Conflict):
                await mending
            there = await ours._manifests.get(store)
            assert there.attempt == before.attempt
            assert not (await ours.tag("a")).shows_lasting(there)

    asyncio.run(run())


def test_a_list_does_not_show_a_store_whose_restorer_died_before_its_manifest() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        halting = Halting(storage)
        async with opened(storage) as ours, opened(halting) as restorer:
            store = (await upload(ours, CONTENT, IngestRequest(tags=("late",)))).store.id
            held = await ours._manifests.get(store)
            await ours.delete(store)
            halting.halt("put_if_absent", "indexes")
            restoring = asyncio.create_task(restorer.restore(store))
            await halting.halted.wait()
            await collect_garbage(storage, grace_seconds=0, clock=lambda: time.time() + SETTLED_SECONDS + 5)
            await Tags(storage).put("late", held, if_match=None, if_none_match=False)  # by one who stood still
            halting.halt("put_if_absent", "stores")
            halting.halted.clear()
            halting.goes_on.set()
            halting.goes_on = asyncio.Event()
            await halting.halted.wait()
            restoring.cancel()
            assert await keys_in(storage, "indexes/time")
            assert not (await ours.list()).items

    asyncio.run(run())

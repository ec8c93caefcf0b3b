"""Claims: of a writer and a collector, one wins, whatever each call of theirs comes between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest
from tests.support.interrupted import InterruptedStorage, at_every_call
from tests.support.stores import assert_whole, in_memory, keys_in, onnx, opened, upload, visible

from protoslice.errors import Conflict, NotFound, StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey, Storage
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog.claims import Claims, Collected, Lease

T = TypeVar("T")


def names_in(attempt: str) -> set[str]:
    """Names of a manifest's objects in any attempt."""
    return {"file-0", "file-0.sums"}


def test_a_collection_between_any_two_calls_of_an_upload_costs_no_acknowledged_store() -> None:
    """The writer stands still past every grace; it either is told so, or its store is whole."""

    async def at(number: int) -> tuple[bool, bool]:
        inner = MemoryStorage()

        async def collect() -> None:
            async with opened(inner) as others:
                await asyncio.sleep(0.002)
                await others.collect_garbage(grace_seconds=0)

        async with opened(inner) as first:
            await first.collect_garbage()
        storage = InterruptedStorage(inner, collect)
        async with opened(storage) as stores:
            storage.arm(number)
            try:
                info = (await upload(stores, {"model.onnx": onnx(3000), "b": bytes(3 << 20)})).store
            except Conflict:
                info = None
            reached = storage.reached
        async with opened(inner) as fresh:
            found = await visible(fresh)
            assert set(found) == ({info.id} if info else set())
            if info:
                await assert_whole(fresh, info)
        return reached, info is None

    async def run() -> None:
        refused = number = 0
        while True:
            number += 1
            reached, was_refused = await at(number)
            refused += was_refused
            if not reached:
                break
        assert number > 15
        assert refused >= 3, "no collection came in time to be noticed: the test shows nothing"

    asyncio.run(run())


def test_a_collector_that_stands_still_spares_what_became_a_store_meanwhile() -> None:
    async def at(number: int) -> bool:
        inner = MemoryStorage()
        async with opened(inner) as ours:
            ingest = await ours.ingest(IngestRequest())
            async with ingest:
                sink = await ingest.file("model.onnx")
                await sink.write(onnx(2000, 2 << 20))
                await sink.close()

                made = []

                async def finish() -> None:
                    with suppress(Conflict):
                        made.append((await ingest.commit()).store.id)

                storage = InterruptedStorage(inner, finish)
                async with opened(storage) as others:
                    await asyncio.sleep(0.002)
                    storage.arm(number)
                    await others.collect_garbage(grace_seconds=0)
            found = await visible(ours)
            assert list(found) == made
            for info in found.values():
                await assert_whole(ours, info)
            return storage.reached

    asyncio.run(at_every_call(at, 10))


class Unsteady(InterceptedStorage):
    """Awaits `meanwhile` before a manifest is written; after that, two calls of a method on a folder fail."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], Awaitable[object]], method: str, folder: str) -> None:
        super().__init__(inner)
        self.failures = 0
        self._meanwhile = meanwhile
        self._place = method, folder

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
        if key is not None and (name, key.segments[0]) == ("put_if_absent", "stores"):
            await self._meanwhile()
            self.failures = 2
        elif key is not None and self.failures and (name, key.segments[0]) == self._place:
            self.failures -= 1
            raise StorageUnavailable("it did not happen")
        return await call()


@pytest.mark.parametrize("place", [("get_range", "objects"), ("get", "objects"), ("put", "stores")], ids=str)
def test_a_writer_that_was_too_late_takes_its_manifest_back_though_calls_fail(place: tuple[str, str]) -> None:
    async def run() -> None:
        inner = MemoryStorage()
        async with opened(inner) as others:

            async def collect() -> None:
                await asyncio.sleep(0.002)
                await others.collect_garbage(grace_seconds=0)

            storage = Unsteady(inner, collect, *place)
            async with opened(storage) as stores:
                with pytest.raises(Collected):
                    await upload(stores, onnx(3000))
            assert await visible(others) == {}
            assert storage.failures == 0, "nothing failed: the test shows nothing"
            assert (await upload(others, onnx(3000))).created

    asyncio.run(run())


def test_a_writer_that_was_too_late_takes_its_manifest_back_though_its_client_leaves() -> None:
    async def run() -> None:
        inner = MemoryStorage()
        async with opened(inner) as others:
            published, go_on = asyncio.Event(), asyncio.Event()

            async def collect() -> None:
                await asyncio.sleep(0.002)
                await others.collect_garbage(grace_seconds=0)

            class Waiting(Unsteady):
                """Waits with the first look at a claim after the manifest is there."""

                async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
                    if self.failures and not published.is_set():
                        published.set()
                        await go_on.wait()
                    return await super().intercept(name, key, call)

            async with opened(Waiting(inner, collect, "none", "none")) as stores:
                sending = asyncio.create_task(upload(stores, onnx(3000)))
                await published.wait()
                assert len(await keys_in(inner, "stores")) == 1
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                go_on.set()
                async with asyncio.timeout(10):
                    while await keys_in(inner, "stores"):
                        await asyncio.sleep(0.001)

    asyncio.run(run())


def test_a_claim_is_renewed_while_an_upload_is_open() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        claims = Claims(storage)
        lease = Lease(claims, "0-a", every=0.01)
        await lease.staked()
        (key,) = [ObjectKey(key) for key in await keys_in(storage)]
        first = (await storage.stat(key)).etag
        condemned = await claims.condemn("0-a")
        assert condemned is not None
        async with asyncio.timeout(10):
            while (await storage.stat(key)).etag in {first, condemned.etag}:
                await asyncio.sleep(0.01)
        assert not await claims.doom(condemned)
        await claims.hold(["0-a"], names_in)
        await lease.end()

    asyncio.run(run())


def test_what_is_doomed_is_never_alive_again() -> None:
    async def run() -> None:
        claims = Claims(MemoryStorage())
        await claims.stake("0-a")
        condemned = await claims.condemn("0-a")
        assert condemned is not None
        assert await claims.doom(condemned)
        for call in (claims.hold(["0-a"], names_in), claims.renew("0-a"), claims.hold(["0-b"], names_in)):
            with pytest.raises(Collected):
                await call

    asyncio.run(run())


def test_what_a_claim_does_not_list_never_comes_back() -> None:
    async def run() -> None:
        claims = Claims(MemoryStorage())
        await claims.stake("0-a")
        for names, left in (({"a", "b"}, {"a", "b"}), ({"a", "c"}, {"a"}), ({"a", "b"}, {"a"})):
            condemned = await claims.condemn("0-a")
            assert condemned is not None
            assert await claims.narrow(condemned, names) == left
            assert not await claims.is_over("0-a", left)
        await claims.hold(["0-a"], lambda _: {"a"})
        for call in (claims.hold(["0-a"], lambda _: {"a", "b"}), claims.renew("0-a", {"b"})):
            with pytest.raises(Collected):
                await call
        condemned = await claims.condemn("0-a")
        assert condemned is not None
        await claims.revive(condemned)
        assert await claims.is_over("0-a", {"b"})

    asyncio.run(run())


def test_an_upload_that_wrote_nothing_leaves_no_claim() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        async with await stores.ingest(IngestRequest()) as ingest:
            sink = await ingest.file("a")
            await sink.write(b"x" * 100)
        assert await keys_in(storage, "objects") == []

    in_memory(work)


class Breaking(InterceptedStorage):
    """Takes no more bytes, and does not even let a writer end."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if name in {"write", "abort"}:
            raise StorageUnavailable(f"{name} failed")
        return await call()


def test_an_upload_that_cannot_even_be_aborted_shows_no_more_signs_of_life() -> None:
    async def run() -> None:
        async with opened(Breaking(MemoryStorage())) as stores:
            with pytest.raises(StorageUnavailable):
                await upload(stores, onnx(3 << 20))
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize("state", ["doomed", "missing"])
def test_no_tag_is_set_to_a_store_that_is_about_to_be_withdrawn(state: str) -> None:
    """The writer published it too late and has yet to look: a tag would be left that points at nothing."""

    async def work(stores: Stores, storage: Storage) -> None:
        info = (await upload(stores, {"model.onnx": onnx(3000)})).store
        (claim,) = [key for key in await keys_in(storage, "objects") if key.endswith("/claim")]
        claims, attempt = Claims(storage), claim.split("/")[1]
        if state == "missing":
            await claims.drop(attempt)
        else:
            condemned = await claims.condemn(attempt)
            assert condemned is not None
            assert await claims.doom(condemned)
        with pytest.raises(NotFound, match="send its files again"):
            await stores.put_tag("a", info.id)
        assert await keys_in(storage, "tags") == []

    in_memory(work)


def test_a_tag_revives_a_store_that_a_collector_has_condemned() -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        info = (await upload(stores, {"model.onnx": onnx(3000)})).store
        (claim,) = [key for key in await keys_in(storage, "objects") if key.endswith("/claim")]
        condemned = await Claims(storage).condemn(claim.split("/")[1])
        assert condemned is not None
        await stores.put_tag("a", info.id)
        assert not await Claims(storage).doom(condemned)

    in_memory(work)


class Dooming(InterceptedStorage):
    """Dooms all attempts but one when a manifest has been written by the call that is named."""

    def __init__(self, inner: Storage, name: str) -> None:
        super().__init__(inner)
        self.spared = ""
        """Claim of the attempt that stays; nothing is doomed while empty file."""
        self._name = name

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        finally:
            if self.spared and name == self._name and key is not None and key.segments[0] == "stores":
                claims = {key for key in await keys_in(self._inner, "objects") if key.endswith("/claim")}
                (late,) = claims - {self.spared}
                self.spared = ""
                await self._inner.delete(ObjectKey(late))


@pytest.mark.parametrize("name", ["put_if_absent", "put"])
def test_a_mender_that_is_too_late_leaves_the_damaged_store_as_it_was(name: str) -> None:
    files = {"model.onnx": onnx(3000), "b": bytes(3 << 20)}

    async def run() -> None:
        storage = Dooming(MemoryStorage(), name)
        async with opened(storage) as stores:
            info = (await upload(stores, files)).store
            await stores.put_tag("a", info.id)
            (lost,) = [key for key in await keys_in(storage, "objects") if key.endswith("/file-0")]
            await storage.delete(ObjectKey(lost))
            storage.spared = lost.replace("file-0", "claim")
            with pytest.raises(Collected):
                await upload(stores, files)
            assert {*await visible(stores)} == {info.id}
            opened_store = await stores.view(info.id)
            assert opened_store.manifest.attempt == lost.split("/")[1]
            assert (await upload(stores, files)).store.id == info.id
            await assert_whole(stores, info)
            assert (await stores.tag("a")).store == info.id

    asyncio.run(run())

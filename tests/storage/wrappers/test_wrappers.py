"""Wrappers keep the contract of what they wrap, and pass every method on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from tests.storage.wrappers.forwarding import assert_forwards
from tests.stores.simulation.loop import SimulatedLoop
from tests.support.faults import FaultyStorage

from protoslice.errors import StorageUnavailable
from protoslice.storage import Call, FileStorage, MemoryStorage, MeteredStorage, ObjectKey, PrefixStorage, Storage
from protoslice.storage.wrappers import LATE_SECONDS, InterceptedStorage, LateCallLimit
from protoslice.testing import Raw, RawFiles, RawThroughStorage, StorageConformance

T = TypeVar("T")
FOLDER = ObjectKey("some/folder")


class TestPrefixOverMemory(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        inner = MemoryStorage()
        await inner.put(ObjectKey("some/folder-beside"), b"out of sight")
        yield PrefixStorage(inner, FOLDER), RawThroughStorage(PrefixStorage(inner, FOLDER))


class TestPrefixOverFiles(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        with TemporaryDirectory() as root:
            async with PrefixStorage(FileStorage(root), FOLDER) as storage:
                yield storage, RawFiles(f"{root}/{FOLDER}")


class TestMetered(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        inner = MemoryStorage()
        calls: list[Call] = []
        yield MeteredStorage(inner, calls.append), RawThroughStorage(inner)


class TestLateCallLimit(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        inner = MemoryStorage()
        yield LateCallLimit(inner), RawThroughStorage(inner)


class TestFaultyBeforeItsFault(StorageConformance):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        inner = MemoryStorage()
        yield FaultyStorage(inner, fail_at=1 << 40), RawThroughStorage(inner)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: PrefixStorage(inner, FOLDER),
        lambda inner: MeteredStorage(inner, lambda call: None),
        LateCallLimit,
        lambda inner: FaultyStorage(inner, 1 << 40),
    ],
    ids=["prefix", "metered", "late-calls", "faulty"],
)
def test_every_method_is_passed_on(wrap: Callable[[Storage], Storage]) -> None:
    assert_forwards(wrap)


def test_a_forgotten_method_is_noticed() -> None:
    class Forgetful(MeteredStorage):
        async def free_bytes(self) -> int:
            return await Storage.free_bytes(self)

    with pytest.raises(Exception, match="free space"):
        assert_forwards(lambda inner: Forgetful(inner, lambda call: None))


class _Slow(InterceptedStorage):
    """Storage in memory that answers each call after `seconds`."""

    seconds = 0.0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self.seconds)
        return await call()


def test_only_late_calls_above_the_limit_refuse_further_ones() -> None:
    """In simulated time; the limit is three calls."""
    key, size = ObjectKey("a"), 3 << 20

    async def work() -> None:
        slow = _Slow(MemoryStorage())
        storage = LateCallLimit(slow, 3)
        await storage.put(key, bytes(size))
        writer = await storage.writer(ObjectKey("b"))
        async with aclosing(storage.stream(key)) as pieces:
            read = len(await anext(pieces))
            slow.seconds = 14
            late = [asyncio.create_task(storage.stat(key)) for _ in range(3)]
            await asyncio.sleep(LATE_SECONDS)
            late += [asyncio.create_task(storage.stat(key)) for _ in range(9)]
            await asyncio.sleep(LATE_SECONDS / 2)
            slow.seconds = 0
            assert (await storage.stat(key)).size == size, "three calls are late: as many as the limit"
            await asyncio.sleep(LATE_SECONDS / 2)
            for call in (lambda: storage.stat(key), lambda: storage.list(), lambda: anext(storage.stream(key))):
                with pytest.raises(StorageUnavailable):
                    await call()
            read += sum([len(piece) async for piece in pieces])
            await writer.abort()
            assert read == size, "work that began before is not refused"
        assert len(await asyncio.gather(*late)) == 12
        assert (await storage.stat(key)).size == size

    loop = SimulatedLoop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()

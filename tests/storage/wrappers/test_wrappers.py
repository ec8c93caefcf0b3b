"""Wrappers keep the contract of what they wrap, and pass every method on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

import pytest

from protoslice.storage import Call, FileStorage, MemoryStorage, MeteredStorage, ObjectKey, PrefixStorage, Storage
from protoslice.testing import FaultyStorage, Raw, RawFiles, RawThroughStorage, StorageConformance, assert_forwards

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
        lambda inner: FaultyStorage(inner, 1 << 40),
    ],
    ids=["prefix", "metered", "faulty"],
)
def test_every_method_is_passed_on(wrap: Callable[[Storage], Storage]) -> None:
    assert_forwards(wrap)


def test_a_forgotten_method_is_noticed() -> None:
    class Forgetful(MeteredStorage):
        async def free_bytes(self) -> int:
            return await Storage.free_bytes(self)

    with pytest.raises(Exception, match="free space"):
        assert_forwards(lambda inner: Forgetful(inner, lambda call: None))

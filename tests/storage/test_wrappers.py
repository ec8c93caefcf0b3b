"""Wrappers fulfil the contract of the wrapped storage, and forward every method."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import pytest
from tests.stores.simulation.loop import SimulatedLoop
from tests.support.interrupted import FaultyStorage

from protoslice.errors import StorageUnavailable
from protoslice.storage import Call, FileStorage, MemoryStorage, MeteredStorage, ObjectKey, PrefixStorage, Storage
from protoslice.storage.interface import (
    PAGE,
    Abilities,
    Buffer,
    ObjectContent,
    ObjectStat,
    OpenFile,
    Page,
    Span,
    Writer,
)
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
    """A storage in memory that answers each call after `seconds`."""

    seconds = 0.0

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self.seconds)
        return await call()


def test_only_late_calls_above_the_limit_refuse_further_ones() -> None:
    """The test uses simulated time; the limit is three calls."""
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


def assert_forwards(wrap: Callable[[Storage], Storage]) -> None:
    """Raise `AssertionError` unless each method of Storage and Writer reaches the same method inside.

    A wrapper that forgets a method with a default, such as `open_file`, fails silently otherwise.
    """
    asyncio.run(_assert_forwards(wrap))


async def _assert_forwards(wrap: Callable[[Storage], Storage]) -> None:
    seen: list[str] = []
    wrapper = wrap(RecordingStorage(seen))
    for name in _methods(Storage):
        await _reach(getattr(wrapper, name), seen, name)
    writer = await wrapper.writer(ObjectKey("a"))
    for name in _methods(Writer):
        await _reach(getattr(writer, name), seen, f"writer.{name}")
    _ = wrapper.abilities, writer.size
    for name in ("abilities", "writer.size"):
        if name not in seen:
            raise AssertionError(f"{name} does not reach the storage inside")


def _methods(interface: type) -> list[str]:
    """Return the public methods, without final methods, which call other methods."""
    functions = {name: member for name, member in vars(interface).items() if inspect.isfunction(member)}
    return [name for name, member in functions.items() if not (name.startswith("_") or hasattr(member, "__final__"))]


async def _reach(method: Callable[..., Any], seen: list[str], name: str) -> None:
    del seen[:]
    result = method(*_arguments(method))
    if inspect.isasyncgen(result):
        _ = [piece async for piece in result]
    else:
        await result
    if seen != [name]:
        raise AssertionError(f"{name} reaches {seen or 'nothing'} of the storage inside")


def _arguments(method: Callable[..., Any]) -> list[object]:
    needed = (p for p in inspect.signature(method).parameters.values() if p.default is p.empty)
    samples = {
        "key": ObjectKey("a"),
        "start": 0,
        "end": 1,
        "spans": [(0, 1)],
        "data": b"x",
        "piece": b"x",
        "etag": "tag",
        "other": "another tag",
    }
    return [samples[parameter.name] for parameter in needed]


class RecordingStorage(Storage):
    """A storage that appends the name of each called method to `seen` and returns a minimal result."""

    def __init__(self, seen: list[str]) -> None:
        self._note = seen.append

    @property
    def abilities(self) -> Abilities:
        self._note("abilities")
        return Abilities()

    async def stat(self, key: ObjectKey) -> ObjectStat:
        self._note("stat")
        return ObjectStat(key, 1, "tag", datetime.fromtimestamp(0, UTC))

    async def get(self, key: ObjectKey) -> ObjectContent:
        self._note("get")
        return ObjectContent(ObjectStat(key, 1, "tag", datetime.fromtimestamp(0, UTC)), b"x")

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        self._note("get_range")
        return b"x"

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        self._note("get_ranges")
        return [b"x"]

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        self._note("stream")
        yield b"x"

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        self._note("put")
        return "tag"

    async def writer(self, key: ObjectKey) -> Writer:
        self._note("writer")
        return _RecordingWriter(self._note)

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        self._note("list")
        return Page((), None)

    async def delete(self, key: ObjectKey) -> None:
        self._note("delete")

    async def open_file(self, key: ObjectKey) -> OpenFile:
        """See `Storage.open_file`; returns a `BytesIO` in place of a file."""
        self._note("open_file")
        return cast(OpenFile, BytesIO())

    async def free_bytes(self) -> int:
        self._note("free_bytes")
        return 1

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        self._note("collect_garbage")
        return 0

    async def close(self) -> None:
        self._note("close")


class _RecordingWriter(Writer):
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    @property
    def size(self) -> int:
        self._note("writer.size")
        return 0

    async def write(self, piece: Buffer) -> None:
        self._note("writer.write")

    async def commit(self) -> str:
        self._note("writer.commit")
        return "tag"

    async def abort(self) -> None:
        self._note("writer.abort")

"""Streams of stored objects: every byte is verified before it is returned, in one read of each object.

Reads that serve a rope are bounded at each step, for any number and distance of its pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import TypeVar

import pytest
from tests.support.counted import CountedBucket
from tests.support.stores import in_memory, keys_in, onnx, opened, upload

from protoslice import _core
from protoslice.concurrency.windows import Windows
from protoslice.errors import IntegrityError
from protoslice.serving import Representation
from protoslice.serving.joined import JoinedObject
from protoslice.serving.stored import SUM_BLOCK, StoredFile
from protoslice.storage import MemoryStorage, ObjectKey, Span
from protoslice.storage.interface import Buffer
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import Stores

T = TypeVar("T")
MIB = 1 << 20
DATA = onnx(5 * MIB + 12345)


async def the_file(stores: Stores) -> StoredFile:
    """Return an uploaded file of a little more than five mebibytes."""
    store = await stores.view((await upload(stores, DATA)).store.id)
    (source,) = store.file("model.onnx").sources
    return source  # type: ignore[return-value]


async def into(given: bytearray, file: StoredFile) -> None:
    """Add the streamed bytes of a file to `given`, piece by piece."""
    async with aclosing(file.stream(0, file.size)) as pieces:
        async for piece in pieces:
            given += piece


async def streamed(file: StoredFile, start: int, end: int) -> bytes:
    async with aclosing(file.stream(start, end)) as pieces:
        return b"".join([bytes(piece) async for piece in pieces])


@pytest.mark.parametrize("copied", [False, True])
async def test_reads_that_lie_apart_are_not_preceded_by_a_look(copied: bool) -> None:
    """Entity tags differ in a copied storage; one refused read shows this."""
    bucket = CountedBucket()
    async with opened(bucket) as stores:
        made = (await upload(stores, DATA)).store.id
        if copied:
            for key in await keys_in(bucket.objects):
                found = await bucket.objects.get(ObjectKey(key))
                await bucket.objects.put(found.stat.key, found.data)
    async with opened(bucket) as stores:
        (source,) = (await stores.view(made)).file("model.onnx").sources
        file: StoredFile = source  # type: ignore[assignment]
        for turn in range(2):
            spans = [file.covering((at, at + 1)) for at in range(turn * SUM_BLOCK, len(DATA), 2 * MIB)]
            bucket.requests.clear()
            assert await file.fetch(spans) == [DATA[start:end] for start, end in spans]
            asked = [method for method, _ in bucket.requests]
            assert asked.count("stat") == copied
            assert turn == 0 or asked.count("get") == len(spans)


def test_any_span_is_streamed() -> None:
    async def work(stores: Stores, _: object) -> None:
        file, random = await the_file(stores), Random(1)
        spans = [sorted((random.randrange(len(DATA)), random.randrange(len(DATA)))) for _ in range(60)]
        for start, end in [*spans, (0, len(DATA)), (len(DATA) - 1, len(DATA)), (SUM_BLOCK, 2 * SUM_BLOCK)]:
            assert await streamed(file, start, end) == DATA[start:end]

    in_memory(work)


async def assert_never_given(file: StoredFile, storage: MemoryStorage, bad: int) -> None:
    """Assert that the stream of a file with a wrong byte `bad` ends before that byte's block, and names the block."""
    key = ObjectKey(file.name)
    data = bytearray(await storage.get_range(key, 0, len(DATA)))
    data[bad] ^= 1
    await storage.delete(key)
    await storage.put(key, bytes(data))
    given = bytearray()
    with pytest.raises(IntegrityError, match="fails its checksum") as caught:
        await into(given, file)
    assert given == DATA[: len(given)]
    assert len(given) <= bad
    assert caught.value.offset == bad - bad % SUM_BLOCK


@pytest.mark.parametrize("bad", [0, SUM_BLOCK - 1, MIB, 3 * MIB + 5, len(DATA) - 1])
async def test_a_damaged_block_is_never_given(stores: Stores, storage: MemoryStorage, bad: int) -> None:
    await assert_never_given(await the_file(stores), storage, bad)


class OddPieces(MemoryStorage):
    """A storage whose streams have pieces of irregular sizes, as a network has."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(seed)

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        """See `Storage.stream`."""
        data = memoryview(await self.get_range(key, start, end or 0, if_etag=if_etag))
        while data:
            size = self._random.choice((1, 100, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, 300_000, 2 * MIB + 7))
            yield data[:size]
            data = data[size:]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bad", [None, 0, 3 * MIB + 5, len(DATA) - 1])
def test_pieces_of_any_sizes_are_verified_block_by_block(bad: int | None, seed: int) -> None:
    async def run() -> None:
        storage = OddPieces(seed)
        async with opened(storage) as stores:
            file = await the_file(stores)
            if bad is None:
                assert await streamed(file, 70_001, len(DATA) - 3) == DATA[70_001 : len(DATA) - 3]
                return
            await assert_never_given(file, storage, bad)

    asyncio.run(run())


async def test_a_missing_object_is_damage(stores: Stores, storage: MemoryStorage) -> None:
    file = await the_file(stores)
    await storage.delete(ObjectKey(file.name))
    with pytest.raises(IntegrityError, match="is missing"):
        await streamed(file, 0, len(DATA))


class Streams(InterceptedStorage):
    """A storage that records which objects are streamed, and which are read by range."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage())
        self.seen: list[tuple[str, str]] = []

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        if key is not None and key.segments[0] == "objects":
            self.seen.append((name, key.text))
        return await call()


async def test_a_large_read_of_a_distant_object_is_one_stream() -> None:
    storage = Streams()
    async with opened(storage) as stores:
        view = (await stores.view((await upload(stores, DATA)).store.id)).file("model.onnx")
        storage.seen.clear()
        async with aclosing(view.pieces(0, view.size)) as pieces:
            assert b"".join([bytes(piece) async for piece in pieces]) == DATA
        assert {name for name, _ in storage.seen} == {"stream"}
        storage.seen.clear()
        async with aclosing(view.pieces(0, MIB)) as pieces:
            assert b"".join([bytes(piece) async for piece in pieces]) == DATA[:MIB]
        assert {name for name, _ in storage.seen} == {"get_ranges"}


async def test_of_many_readers_who_come_at_once_few_get_streams() -> None:
    storage, windows = Streams(), Windows()
    async with opened(storage) as stores:
        view = (await stores.view((await upload(stores, DATA)).store.id)).file("model.onnx")
        storage.seen.clear()
        readers = [view.pieces(0, view.size, windows.open(view.size, "per client")) for _ in range(64)]
        await asyncio.gather(*(anext(reader) for reader in readers))
        assert sum(name == "get_ranges" for name, _ in storage.seen) >= 40
        for reader in readers:
            await reader.aclose()
    assert windows.free == Windows().free


async def test_files_of_several_objects_are_streamed_part_by_part(stores: Stores, storage: MemoryStorage) -> None:
    file = await the_file(stores)
    (part,) = file.parts
    half = part.size // 2
    joined = JoinedObject([part], [(part, half, part.size), (part, 0, part.size), (part, 0, half)])
    whole = (DATA * 3)[part.size // 2 :][: 2 * part.size]
    for start, end in [(0, joined.size), (5, joined.size - 5), (part.size, part.size + 9), (7, 7)]:
        assert await streamed(joined, start, end) == whole[start:end]
    assert len(await keys_in(storage, "objects")) > 0


async def test_files_are_made_of_extents_at_any_offsets(stores: Stores) -> None:
    """Extents begin and end within blocks; bytes of the blocks beyond them are never returned."""
    cuts = [(70_001, 200_003), (5, 9), (131_072, 196_608), (199_999, 200_001), (0, 65_537), (len(DATA) - 3, len(DATA))]
    whole = b"".join(DATA[start:end] for start, end in cuts)
    (part,) = (await the_file(stores)).parts
    joined = JoinedObject([part], [(part, *cut) for cut in cuts])
    assert joined.size == len(whole)
    edges = {
        0,
        joined.size,
        *(sum(end - start for start, end in cuts[:n]) + d for n in range(1, 6) for d in (-1, 0, 1)),
    }
    for start, end in ((start, end) for start in edges for end in edges if start < end):
        low, high = joined.covering((start, end))
        assert low <= start
        assert end <= high
        assert await joined.fetch([(low, high), (start, end)]) == [whole[low:high], whole[start:end]]
        assert await stores.worker.run(lambda: joined.read(start, end - start)) == whole[start:end]  # noqa: B023
        assert await streamed(joined, start, end) == whole[start:end]


async def test_a_block_of_several_extents_is_fetched_once(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    (part,) = (await the_file(stores)).parts
    fetched, fetch = list[tuple[int, int]](), part.fetch

    async def noted(spans: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        fetched.extend(spans)
        return await fetch(spans)

    monkeypatch.setattr(part, "fetch", noted)
    cuts = [(at, at + 900) for at in range(0, 3 * SUM_BLOCK - 900, 1000)]
    joined = JoinedObject([part], [(part, *cut) for cut in cuts])
    assert await joined.fetch([(10, joined.size)]) == [b"".join(DATA[start:end] for start, end in cuts)[10:]]
    assert fetched == [(0, 3 * SUM_BLOCK)]


BLOCK = 64 << 10


class Blocks:
    """Bytes in memory that are read in whole blocks; they record the result of each fetch."""

    def __init__(self, data: bytes, *, near: bool = False) -> None:
        self.size = len(data)
        self.is_near = near
        self.fetched: list[int] = []
        self.streamed: list[Span] = []
        self._data = data

    def read(self, offset: int, length: int, /) -> bytes:
        """Fail: the loop does not use this method."""
        raise AssertionError

    def covering(self, span: Span) -> Span:
        """Return whole blocks."""
        return span[0] - span[0] % BLOCK, min(self.size, span[1] + -span[1] % BLOCK)

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """Return the bytes of spans from `covering`."""
        assert all(self.covering(span) == span for span in spans)
        self.fetched.append(sum(end - start for start, end in spans))
        return [self._data[start:end] for start, end in spans]

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the bytes, in uneven pieces."""
        self.streamed.append((start, end))
        for at in range(start, end, 700_000):
            yield self._data[at : min(at + 700_000, end)]

    def read_cached(self, offset: int, length: int) -> None:
        """Return None, so that each read goes to the storage."""


class CountedRope:
    """A rope that counts how many pieces become objects at once."""

    def __init__(self, rope: _core.Rope, most: list[int]) -> None:
        self._rope = rope
        self._most = most

    def __getattr__(self, name: str) -> object:
        return getattr(self._rope, name)

    def slice(self, start: int, stop: int) -> CountedRope:
        """Return the rope of a part, which counts too."""
        return CountedRope(self._rope.slice(start, stop), self._most)

    def pieces(self) -> list[bytes | tuple[int, int, int]]:
        """Return the pieces, and count them."""
        pieces = self._rope.pieces()
        self._most[0] = max(self._most[0], len(pieces))
        return pieces


def served(rope: _core.Rope, *sources: Blocks, windows: Windows | None = None) -> list[bytes]:
    async def work() -> list[bytes]:
        view = Representation(rope, sources, "etag", "name")
        window = windows.open(view.size, "") if windows is not None else None
        async with aclosing(view.pieces(0, view.size, window)) as pieces:
            return [bytes(piece) async for piece in pieces]

    return asyncio.run(work())


def far(count: int) -> tuple[_core.Rope, Blocks, bytes]:
    """Return ten bytes from about every second block, each after a literal."""
    data = Random(0).randbytes(16 * MIB)
    places = [number * 130_000 % (len(data) - 10) for number in range(count)]
    rope = _core.Rope([piece for at in places for piece in (b"<>", (0, at, 10))])
    return rope, Blocks(data), b"".join(b"<>" + data[at : at + 10] for at in places)


def test_far_extents_are_read_a_few_mebibytes_at_a_time() -> None:
    rope, source, expected = far(1000)
    assert b"".join(served(rope, source)) == expected
    assert max(source.fetched) <= 4 * MIB, max(source.fetched)


def test_near_extents_in_any_order_are_read_once() -> None:
    data = Random(1).randbytes(BLOCK)
    places = list(range(0, BLOCK - 10, 20))
    Random(2).shuffle(places)
    source = Blocks(data)
    assert b"".join(served(_core.Rope([(0, at, 10) for at in places]), source)) == b"".join(
        data[at : at + 10] for at in places
    )
    assert source.fetched == [BLOCK]


def test_no_objects_are_made_of_many_pieces() -> None:
    rope, source, expected = far(20_000)
    most = [0]
    assert b"".join(served(CountedRope(rope, most), source)) == expected  # type: ignore[arg-type]
    assert most[0] <= 1


@pytest.mark.parametrize("size", [3 * MIB + 7, 5 * MIB])
@pytest.mark.parametrize("near", [False, True])
def test_what_lies_together_is_read_once(size: int, near: bool) -> None:
    data = Random(3).randbytes(size)
    source = Blocks(data, near=near)
    pieces = served(_core.Rope([(0, 5, size - 5)]), source)
    assert b"".join(pieces) == data[5:]
    assert max(map(len, pieces)) <= MIB
    assert (sum(source.fetched), source.streamed) == ((size, []) if near else (0, [(5, size)]))


def test_long_extents_of_a_distant_source_are_streams_and_the_rest_is_batches() -> None:
    """A batch goes into the extent after it, so that a short head costs no separate request."""
    data = Random(5).randbytes(12 * MIB)
    source = Blocks(data)
    rope = _core.Rope([b"head", (0, 5, 4 * MIB), b"between", (0, 9 * MIB, 10), (0, 5 * MIB, 3 * MIB), b"tail"])
    expected = b"head" + data[5 : 4 * MIB + 5] + b"between" + data[9 * MIB :][:10] + data[5 * MIB : 8 * MIB] + b"tail"
    assert b"".join(served(rope, source)) == expected
    assert len(source.streamed) == 2
    assert all(end - start > MIB for start, end in source.streamed)
    assert sum(source.fetched) <= 3 * MIB


def test_the_next_streams_have_begun_while_one_is_read() -> None:
    source = Blocks(bytes(64 * MIB))
    rope = _core.Rope([(0, 4 * number * MIB, 3 * MIB) for number in range(8)])

    async def work() -> int:
        view = Representation(rope, [source], "etag", "name")
        async with aclosing(view.pieces(0, view.size)) as pieces:
            await anext(pieces)
            await asyncio.sleep(0)
            return len(source.streamed)

    assert asyncio.run(work()) == 3


def test_where_memory_is_short_nothing_is_read_ahead() -> None:
    source, windows = Blocks(bytes(64 * MIB)), Windows(MIB)
    served(_core.Rope([(0, 0, 3 * MIB)]), source, windows=windows)
    assert source.streamed != []
    windows.free -= MIB
    source.streamed.clear()
    served(_core.Rope([(0, 0, 3 * MIB)]), source, windows=windows)
    assert source.streamed == []


@pytest.mark.parametrize("near", [False, True])
def test_what_a_client_takes_is_read_once_however_it_is_cut(near: bool) -> None:
    data = Random(4).randbytes(5 * MIB)
    source, windows = Blocks(data, near=near), Windows()
    pieces = served(_core.Rope([b"head", (0, 5, 5 * MIB - 9), b"tail"]), source, windows=windows)
    assert b"".join(pieces) == b"head" + data[5:-4] + b"tail"
    assert sum(source.fetched) + sum(end - start for start, end in source.streamed) <= len(data) + BLOCK
    assert len(pieces[0]) <= (BLOCK if near else MIB)
    assert source.fetched[0] == (BLOCK if near else MIB)


def test_a_reader_that_leaves_gives_its_window_back() -> None:
    windows = Windows()
    before = windows.free

    async def leave() -> int:
        view = Representation(_core.Rope([(0, 0, 5 * MIB)]), [Blocks(bytes(5 * MIB))], "etag", "name")
        async with aclosing(view.pieces(0, view.size, windows.open(view.size, ""))) as pieces:
            await anext(pieces)
            return windows.free

    assert before - 2 * MIB <= asyncio.run(leave()) < before - MIB, "a piece, and as much for what is read ahead"
    assert windows.free == before


def test_read_cached_makes_no_objects_of_many_pieces() -> None:
    rope, source, _ = far(1000)
    most = [0]
    view = Representation(CountedRope(rope, most), [source], "etag", "name")  # type: ignore[arg-type]
    assert view.read_cached(0, view.size) is None
    assert most[0] <= 1

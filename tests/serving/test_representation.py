"""Reads that serve a rope are bounded in one go, for any number and distance of its pieces."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from random import Random

import pytest

from protoslice import _core
from protoslice.concurrency.windows import Windows
from protoslice.serving import Representation
from protoslice.storage import Span

BLOCK = 64 << 10
MIB = 1 << 20


class Blocks:
    """Bytes in memory that are read in whole blocks; notes what each fetch brought."""

    def __init__(self, data: bytes, *, near: bool = False) -> None:
        self.size = len(data)
        self.is_near = near
        self.fetched: list[int] = []
        self.streamed: list[Span] = []
        self._data = data

    def read(self, offset: int, length: int, /) -> bytes:
        """Not of use to the loop."""
        raise AssertionError

    def covering(self, span: Span) -> Span:
        """Whole blocks."""
        return span[0] - span[0] % BLOCK, min(self.size, span[1] + -span[1] % BLOCK)

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The bytes of spans that `covering` gave."""
        assert all(self.covering(span) == span for span in spans)
        self.fetched.append(sum(end - start for start, end in spans))
        return [self._data[start:end] for start, end in spans]

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """The bytes, in uneven pieces."""
        self.streamed.append((start, end))
        for at in range(start, end, 700_000):
            yield self._data[at : min(at + 700_000, end)]

    def read_cached(self, offset: int, length: int) -> None:
        """No bytes are at hand: each read goes to the storage."""


class CountedRope:
    """A rope that counts the pieces that were made objects of at once."""

    def __init__(self, rope: _core.Rope, most: list[int]) -> None:
        self._rope = rope
        self._most = most

    def __getattr__(self, name: str) -> object:
        return getattr(self._rope, name)

    def slice(self, start: int, stop: int) -> "CountedRope":
        """The rope of a part, counted too."""
        return CountedRope(self._rope.slice(start, stop), self._most)

    def pieces(self) -> list[bytes | tuple[int, int, int]]:
        """The pieces, which count."""
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
    """Ten bytes of every second block or so, each behind a literal."""
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
    """A batch goes into the extent behind it, so that a short head costs no request of its own."""
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

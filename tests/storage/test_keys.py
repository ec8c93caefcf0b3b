"""Object keys: valid names, and the conversion of any text to a name.

Plans of reads: few requests, every byte, and no more than the limit at once.
"""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import InvalidInput
from protoslice.storage import ObjectKey, quote, unquote
from protoslice.storage.interface import Span
from protoslice.storage.ranges import Group, coalesce, read_ahead, read_groups

EMPTY_OR_DOTTED = ["", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/./b", "../a", "a/.."]
UNPRINTABLE = ["a\0b", "a\nb", "a\x7fb", "a\\b", "\ud800", "a/\u2028b", "a\u202eb"]
TOO_LONG = ["s" * 256, "é" * 128, "/".join("a" * 33), "/".join(["s" * 200] * 4)]
RESERVED = [".protoslice", ".protoslice/tmp/x"]


@pytest.mark.parametrize("text", EMPTY_OR_DOTTED + UNPRINTABLE + TOO_LONG + RESERVED)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(InvalidInput):
        ObjectKey(text)


@pytest.mark.parametrize("text", ["a", "a b", ".hidden", "...", "a/.protoslice", "é/日", "s" * 255, "/".join("a" * 32)])
def test_what_is_a_key(text: str) -> None:
    assert str(ObjectKey(text)) == text
    assert "/".join(ObjectKey(text).segments) == text


def test_keys_are_joined_and_checked_again() -> None:
    assert ObjectKey("a") / "b" / ObjectKey("c/d") == ObjectKey("a/b/c/d")
    with pytest.raises(InvalidInput):
        ObjectKey("a") / ".."
    with pytest.raises(InvalidInput):
        ObjectKey("a") / "/etc"


def test_below_is_by_segment() -> None:
    assert ObjectKey("a/b").is_below(ObjectKey("a"))
    assert ObjectKey("a/b").is_below(None)
    assert not ObjectKey("ab/c").is_below(ObjectKey("a"))
    assert not ObjectKey("a").is_below(ObjectKey("a"))


@given(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=6))
def test_keys_are_ordered_as_their_bytes(texts: list[str]) -> None:
    keys = [ObjectKey(quote(text)) for text in texts]
    assert sorted(keys) == sorted(keys, key=lambda key: key.text.encode())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_text_has_a_quoted_segment(text: str) -> None:
    segment = quote(text)
    assert segment.isascii()
    assert not segment.startswith(".")
    assert unquote(segment) == text
    assert ObjectKey(segment).segments == (segment,)


def test_every_tag_name_has_a_segment() -> None:
    for sign in "._:@~+-":
        assert ObjectKey(quote("a" + sign * 127)).text == "a" + sign * 127


@pytest.mark.parametrize("segment", ["=", "=4", "=41", "a b", "=C3", "é", "=2e", ".a", "a/b", "=2Ea=2E"])
def test_what_quote_never_makes_is_refused(segment: str) -> None:
    with pytest.raises(InvalidInput):
        unquote(segment)


SPANS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 90)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=20
)


def test_near_spans_share_a_read() -> None:
    assert coalesce([(100, 110), (0, 10), (12, 20)], gap=2, largest=50) == [Group(0, 20, (1, 2)), Group(100, 110, (0,))]


def test_far_and_large_spans_do_not() -> None:
    assert coalesce([(0, 10), (13, 20)], gap=2, largest=50) == [Group(0, 10, (0,)), Group(13, 20, (1,))]
    assert coalesce([(0, 40), (40, 60)], gap=2, largest=50) == [Group(0, 40, (0,)), Group(40, 60, (1,))]
    assert coalesce([(0, 400)], gap=2, largest=50) == [Group(0, 400, (0,))]


def test_a_span_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput):
        coalesce([(0, 1), (5, 4)], gap=0, largest=9)


@given(SPANS, st.integers(0, 30), st.integers(1, 200))
def test_groups_cover_every_span_once(spans: list[Span], gap: int, largest: int) -> None:
    groups = coalesce(spans, gap=gap, largest=largest)
    assert sorted(place for group in groups for place in group.members) == list(range(len(spans)))
    for group in groups:
        members = [spans[place] for place in group.members]
        assert (group.start, group.end) == (min(start for start, _ in members), max(end for _, end in members))
        assert group.end - group.start <= largest or len(members) == 1


@given(SPANS, st.integers(1, 4))
def test_the_bytes_are_those_of_each_span(spans: list[Span], window: int) -> None:
    data = random.Random(3).randbytes(600)
    under_way = most = 0

    async def read(start: int, end: int) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return data[start:end]

    groups = coalesce(spans, gap=3, largest=100)
    assert list(asyncio.run(read_groups(groups, spans, read, window=window))) == [data[a:b] for a, b in spans]
    assert most <= window


def test_the_first_failure_stops_the_others() -> None:
    begun: list[int] = []

    async def read(start: int, end: int) -> bytes:
        begun.append(start)
        if start == 100:
            raise InvalidInput("broken")
        await asyncio.sleep(3600)
        return b""

    spans = [(at, at + 1) for at in range(0, 2000, 100)]
    with pytest.raises(InvalidInput, match="broken"):
        asyncio.run(read_groups(coalesce(spans, gap=0, largest=9), spans, read, window=3))
    assert len(begun) <= 3


@given(st.integers(0, 50), st.integers(0, 100), st.integers(1, 40), st.integers(1, 4))
def test_reading_ahead_keeps_the_order(start: int, length: int, step: int, ahead: int) -> None:
    data = random.Random(4).randbytes(200)
    chance = random.Random(length)

    async def read(low: int, high: int) -> bytes:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        return data[low:high]

    async def collect() -> bytes:
        pieces = read_ahead(read, start, start + length, step=step, ahead=ahead)
        return b"".join([piece async for piece in pieces])

    assert asyncio.run(collect()) == data[start : start + length]

"""Pieces cover their file, and the same content has the same pieces wherever it stands."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice import _core
from protoslice.pieces import LEAST, LONGEST, PieceCutter, Span, cut, regions

NOISE = Random(0).randbytes(16 << 20)
spans = st.lists(st.tuples(st.integers(0, 40 << 20), st.integers(0, 12 << 20)).map(lambda p: (p[0], p[0] + p[1])))


def pieces_of(data: bytes, extents: list[Span] | None = None) -> list[tuple[int, bytes]]:
    return list(cut(len(data), extents or [], lambda start, end: data[start:end]))


@given(size=st.integers(0, 50 << 20), extents=spans)
def test_regions_cover_the_file_in_order(size: int, extents: list[Span]) -> None:
    found = list(regions(size, extents))
    assert [start for start, _ in found] == [0, *[end for _, end in found]][: len(found)]
    assert (found[-1][1] if found else 0) == size
    assert all(start < end for start, end in found)


@pytest.mark.parametrize("size", [0, 1, LEAST, _core.SHORTEST_PIECE, LONGEST, LONGEST + 1, len(NOISE)])
@pytest.mark.parametrize("extents", [[], [(0, LEAST)], [(5, 3 << 20), (4 << 20, 9 << 20)]])
def test_pieces_cover_the_file_in_order(size: int, extents: list[Span]) -> None:
    at = 0
    for offset, data in pieces_of(NOISE[:size], extents):
        assert offset == at
        assert 0 < len(data) <= LONGEST
        assert data == NOISE[at : at + len(data)]
        at += len(data)
    assert at == size


@pytest.mark.parametrize("at", [0, 5 << 20])
def test_an_insertion_changes_a_piece_or_two(at: int) -> None:
    before = {data for _, data in pieces_of(NOISE)}
    longer = NOISE[:at] + bytes(range(100)) + NOISE[at:]
    fresh = [data for _, data in pieces_of(longer) if data not in before]
    assert 1 <= len(fresh) <= 2
    assert len(before) > 8


def test_pieces_do_not_depend_on_how_the_bytes_come() -> None:
    size, found = 9 << 20, list[tuple[int, bytes]]()
    cutter, random, at = PieceCutter(0, size), Random(1), 0
    while at < size:
        step = min(size - at, random.choice([1, 1000, 1 << 20, LONGEST + 1]))
        left = memoryview(NOISE)[at : at + step]
        at += step
        while left:
            left = cutter.take(left)
            while cutter.is_due:
                found.append(cutter.cut())
    assert found == pieces_of(NOISE[:size])


def test_an_extent_has_its_own_pieces_wherever_it_stands() -> None:
    extent = NOISE[: 3 << 20]
    alone = [data for _, data in pieces_of(extent)]
    for start in (1, LONGEST - 1, LONGEST + 77):
        file = bytes(start) + extent + b"behind"
        pieces = pieces_of(file, [(start, start + len(extent))])
        assert [data for offset, data in pieces if start <= offset < start + len(extent)] == alone


def test_the_shortest_piece_is_a_whole_file() -> None:
    for start in range(0, 8 << 20, 1 << 19):
        data = NOISE[start : start + _core.SHORTEST_PIECE]
        assert pieces_of(data) == [(0, data)]


def test_small_and_overlapping_extents_do_not_matter() -> None:
    assert list(regions(LONGEST, [(5, 5 + LEAST - 1)])) == [(0, LONGEST)]
    assert list(regions(LONGEST, [(0, LEAST), (10, LEAST + 10)])) == [(0, LEAST), (LEAST, LONGEST)]

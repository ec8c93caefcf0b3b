"""Pieces cover their file, and the same content has the same pieces wherever it stands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protoslice.pieces import LEAST, PIECE_BLOCK, cut

spans = st.lists(st.tuples(st.integers(0, 40 << 20), st.integers(0, 12 << 20)).map(lambda p: (p[0], p[0] + p[1])))


@given(size=st.integers(0, 50 << 20), extents=spans)
def test_pieces_cover_the_file_in_order(size: int, extents: list[tuple[int, int]]) -> None:
    pieces = list(cut(size, extents))
    assert [start for start, _ in pieces] == [0, *[end for _, end in pieces]][: len(pieces)]
    assert (pieces[-1][1] if pieces else 0) == size
    assert all(0 < end - start <= PIECE_BLOCK for start, end in pieces)


def test_an_extent_has_its_own_pieces_wherever_it_stands() -> None:
    length = PIECE_BLOCK + 12345
    for start in (0, 1, PIECE_BLOCK - 1, 3 * PIECE_BLOCK + 77):
        pieces = list(cut(start + length + 99, [(start, start + length)]))
        assert {(start, start + PIECE_BLOCK), (start + PIECE_BLOCK, start + length)} <= set(pieces)


def test_small_and_overlapping_extents_do_not_matter() -> None:
    assert list(cut(PIECE_BLOCK, [(5, 5 + LEAST - 1)])) == [(0, PIECE_BLOCK)]
    assert list(cut(PIECE_BLOCK, [(0, LEAST), (10, LEAST + 10)])) == [(0, LEAST), (LEAST, PIECE_BLOCK)]

"""Equality of ropes: however their bytes are cut, and by no more reads than need be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protoslice.comparing.equality import Equality
from protoslice.concurrency import finish
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope

Part = tuple[int, int, bool]
"""Offset and length of bytes of `SOURCE`, and True for a literal copy."""

SOURCE = BytesSource(bytes(range(3)) * 12)  # the same bytes lie at several offsets
PARTS = st.lists(st.tuples(st.integers(0, 28), st.integers(1, 8), st.booleans()), max_size=6)


def rope_of(parts: list[Part]) -> Rope:
    found = (Rope.of(SOURCE, start, start + length) for start, length, _ in parts)
    return Rope.joined(bytes(rope) if literal else rope for rope, (*_, literal) in zip(found, parts, strict=True))


def compared(one: Rope, other: Rope) -> tuple[bool, int]:
    """Return whether both are equal, and the bytes that were read of both."""
    equality = Equality(lambda one, other, length: [(0, length)], lambda _: None, local=True, stored=1 << 20)
    return finish(equality.equal(one, other)), equality.read


@given(PARTS, PARTS)
def test_ropes_are_equal_if_their_bytes_are(one: list[Part], other: list[Part]) -> None:
    ropes = rope_of(one), rope_of(other)
    assert compared(*ropes)[0] == (bytes(ropes[0]) == bytes(ropes[1]))


@given(PARTS, st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=6, max_size=6))
def test_extents_that_are_the_same_are_not_read(parts: list[Part], cuts: list[tuple[int, bool]]) -> None:
    whole, pieces = list[Part](), list[Part]()
    for (start, length, _), (cut, copied) in zip(parts, cuts, strict=False):
        whole.append((start, length, False))
        pieces += [(start, min(cut, length), copied), (start + cut, max(length - cut, 0), False)]
    equal, read = compared(rope_of(whole), rope_of([piece for piece in pieces if piece[1]]))
    assert equal
    assert read == 2 * sum(length for _, length, copied in pieces if copied)

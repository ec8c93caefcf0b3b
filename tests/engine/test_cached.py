"""Reads that do not wait: what lies in the page cache, block by block, each held to its sum."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice import _core
from protoslice.errors import IntegrityError

BLOCK = 64 << 10
DATA = bytes(range(251)) * 1500  # five blocks and some
BLOCKS = -(-len(DATA) // BLOCK)


def sums_of(data: bytes) -> bytes:
    sums = _core.BlockSums()
    sums.update(data)
    return sums.finish()


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path: Path = tmp_path_factory.mktemp("cached") / "data"
    path.write_bytes(DATA)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@given(st.integers(0, len(DATA)), st.integers(0, len(DATA)))
def test_any_span_without_sums(descriptor: int, a: int, b: int) -> None:
    start, end = min(a, b), max(a, b)
    assert _core.read_cached(descriptor, start, end) == DATA[start:end]


@given(st.integers(0, BLOCKS), st.integers(0, BLOCKS))
def test_any_blocks_with_sums(descriptor: int, a: int, b: int) -> None:
    start, end = min(a, b) * BLOCK, min(max(a, b) * BLOCK, len(DATA))
    assert _core.read_cached(descriptor, start, end, sums_of(DATA)) == DATA[start:end]


@pytest.mark.parametrize("bad", range(BLOCKS))
def test_a_block_that_differs_is_named(descriptor: int, bad: int) -> None:
    sums = bytearray(sums_of(DATA))
    sums[bad * 4] ^= 1
    with pytest.raises(IntegrityError) as caught:
        _core.read_cached(descriptor, 0, len(DATA), bytes(sums))
    assert caught.value.offset == bad * BLOCK
    others = [n for n in range(BLOCKS) if n != bad]
    for n in others:
        start, end = n * BLOCK, min((n + 1) * BLOCK, len(DATA))
        assert _core.read_cached(descriptor, start, end, bytes(sums)) == DATA[start:end]


def test_a_block_without_a_sum_is_not_believed(descriptor: int) -> None:
    with pytest.raises(IntegrityError):
        _core.read_cached(descriptor, 0, len(DATA), sums_of(DATA)[:-4])


def test_what_is_not_there_is_not_at_hand(descriptor: int) -> None:
    assert _core.read_cached(descriptor, 0, len(DATA) + 1) is None
    assert _core.read_cached(descriptor, 1 << 63, (1 << 63) + 10) is None
    assert _core.read_cached(-1, 0, 10) is None
    assert _core.read_cached(descriptor, 10, 0) == b""


def test_more_than_memory_can_hold_is_an_error(descriptor: int) -> None:
    with pytest.raises((OverflowError, MemoryError)):
        _core.read_cached(descriptor, 0, (1 << 64) - 1)

"""Reads from the page cache and checksums: block by block, without copies; signals end long work."""

from __future__ import annotations

import hashlib
import mmap
import os
import signal
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice import _core, varints
from protoslice.errors import CorruptModel, IntegrityError
from protoslice.sources.files import BytesSource, FileSource
from protoslice.storage.interface import Buffer

BLOCK = 64 << 10
DATA = bytes(range(251)) * 1500  # five blocks and a part of one
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


# Checksums by the engine: of bytes without a copy, and piece by piece of buffers that may change.

CHECKSUMS_DATA = Random(1).randbytes((1 << 19) + 7)
FIELD = b"\x0a" + varints.write(len(CHECKSUMS_DATA)) + CHECKSUMS_DATA


def test_every_buffer_has_the_checksum_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(CHECKSUMS_DATA)
    whole = _core.crc32c(CHECKSUMS_DATA)
    assert whole == _core.crc32c(CHECKSUMS_DATA[1000:], _core.crc32c(CHECKSUMS_DATA[:1000]))
    for buffer in (bytearray(CHECKSUMS_DATA), memoryview(CHECKSUMS_DATA), memoryview(bytearray(CHECKSUMS_DATA))):
        assert _core.crc32c(buffer) == whole
    assert _core.crc32c(memoryview(array("I", CHECKSUMS_DATA[:400]))) == _core.crc32c(CHECKSUMS_DATA[:400])
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert _core.crc32c(memoryview(mapped)) == whole
    assert _core.crc32c(bytearray(), 7) == 7
    for refused in (memoryview(CHECKSUMS_DATA)[::2], "text", None):
        with pytest.raises(TypeError):
            _core.crc32c(refused)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)).toreadonly()])
def test_digests_take_every_buffer(kind: Callable[[bytes], Buffer]) -> None:
    sums = _core.BlockSums()
    sums.update(CHECKSUMS_DATA)
    due = sums.finish()
    sha, scanner = _core.Sha256(), _core.Scanner()
    for at in range(0, len(FIELD), 100_000):
        sha.update(kind(FIELD[at : at + 100_000]), sums, scanner)
    assert sha.digest() == hashlib.sha256(FIELD).digest()
    assert scanner.finish(len(FIELD)) == _core.index_source([BytesSource(FIELD)])
    assert _core.first_bad_block(kind(FIELD), 0, sums.finish()) is None
    assert _core.first_bad_block(kind(CHECKSUMS_DATA), 0, due) is None
    for place in (0, 1 << 16, (1 << 18) + 5, len(CHECKSUMS_DATA) - 1):
        damaged = CHECKSUMS_DATA[:place] + bytes([CHECKSUMS_DATA[place] ^ 1]) + CHECKSUMS_DATA[place + 1 :]
        assert _core.first_bad_block(kind(damaged), 0, due) == place >> 16
        assert _core.first_bad_block(kind(damaged), 0, due, place >> 16 << 16) is None
        assert _core.first_bad_block(kind(damaged[1 << 16 :]), 1, due) == (place >> 16 or None)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_digest_and_its_sums_outlive_a_failed_scan(kind: Callable[[bytes], Buffer]) -> None:
    data, alone = b"\x0f" + CHECKSUMS_DATA, _core.BlockSums()
    sha, sums = _core.Sha256(), _core.BlockSums()
    with pytest.raises(CorruptModel):
        sha.update(kind(data), sums, _core.Scanner())
    alone.update(data)
    assert (sha.digest(), sums.finish()) == (hashlib.sha256(data).digest(), alone.finish())


# Long work ends when a signal handler raises.


class Stop(Exception):
    """The exception of the signal's handler; Ctrl-C's handler raises KeyboardInterrupt like this."""


@pytest.fixture
def stopping() -> Iterator[None]:
    """Install a signal handler that stops running work."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def soon_stopped(work: Callable[[], object]) -> None:
    """Do `work` while the signal is about to arrive."""
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    work()


@pytest.mark.usefixtures("stopping")
def test_a_scan_that_would_take_for_ever_ends_at_a_signal(tmp_path: Path) -> None:
    """A rope repeats a file of a mebibyte a quarter of a million times."""
    path = tmp_path / "numbers.pb"
    path.write_bytes(b"\x08\x01" * (1 << 19))
    with FileSource(path) as source:
        rope = _core.Rope([(0, 0, source.size)] * 1024)
        for _ in range(2):
            rope = _core.Rope([rope] * 16)
        with pytest.raises(Stop):
            soon_stopped(lambda: _core.index_source([source], rope))

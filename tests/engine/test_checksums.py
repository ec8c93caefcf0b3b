"""Checksums by the engine: of bytes without a copy, of buffers that may change by pieces."""

from __future__ import annotations

import mmap
from array import array
from pathlib import Path
from random import Random

import pytest

from protoslice import _core

DATA = Random(1).randbytes((1 << 19) + 7)


def test_every_buffer_has_the_checksum_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    whole = _core.crc32c(DATA)
    assert whole == _core.crc32c(DATA[1000:], _core.crc32c(DATA[:1000]))
    for buffer in (bytearray(DATA), memoryview(DATA), memoryview(bytearray(DATA))):
        assert _core.crc32c(buffer) == whole
    assert _core.crc32c(memoryview(array("I", DATA[:400]))) == _core.crc32c(DATA[:400])
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert _core.crc32c(memoryview(mapped)) == whole
    assert _core.crc32c(bytearray(), 7) == 7
    for refused in (memoryview(DATA)[::2], "text", None):
        with pytest.raises(TypeError):
            _core.crc32c(refused)  # type: ignore[arg-type]


def test_blocks_are_checked_of_bytes_alone() -> None:
    """Another thread may write to any other buffer while the blocks are looked at."""
    sums = _core.BlockSums()
    sums.update(DATA)
    due = sums.finish()
    assert _core.first_bad_block(DATA, 0, due) is None
    assert _core.first_bad_block(DATA[:-1] + b"!", 0, due) == len(DATA) >> 16
    for buffer in (bytearray(DATA), memoryview(DATA)):
        with pytest.raises(TypeError):
            _core.first_bad_block(buffer, 0, due)  # type: ignore[arg-type]

"""Checksums by the engine: of bytes without a copy, of buffers that may change by pieces."""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from protoslice import _core, varints
from protoslice.errors import CorruptModel
from protoslice.sources.files import BytesSource
from protoslice.storage.interface import Buffer

DATA = Random(1).randbytes((1 << 19) + 7)
FIELD = b"\x0a" + varints.write(len(DATA)) + DATA


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


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)).toreadonly()])
def test_digests_take_every_buffer(kind: Callable[[bytes], Buffer]) -> None:
    sums = _core.BlockSums()
    sums.update(DATA)
    due = sums.finish()
    sha, scanner = _core.Sha256(), _core.Scanner()
    for at in range(0, len(FIELD), 100_000):
        sha.update(kind(FIELD[at : at + 100_000]), sums, scanner)
    assert sha.digest() == hashlib.sha256(FIELD).digest()
    assert scanner.finish(len(FIELD)) == _core.index_source([BytesSource(FIELD)])
    assert _core.first_bad_block(kind(FIELD), 0, sums.finish()) is None
    assert _core.first_bad_block(kind(DATA), 0, due) is None
    for place in (0, 1 << 16, (1 << 18) + 5, len(DATA) - 1):
        damaged = DATA[:place] + bytes([DATA[place] ^ 1]) + DATA[place + 1 :]
        assert _core.first_bad_block(kind(damaged), 0, due) == place >> 16
        assert _core.first_bad_block(kind(damaged), 0, due, place >> 16 << 16) is None
        assert _core.first_bad_block(kind(damaged[1 << 16 :]), 1, due) == (place >> 16 or None)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_digest_and_its_sums_outlive_a_failed_scan(kind: Callable[[bytes], Buffer]) -> None:
    data, alone = b"\x0f" + DATA, _core.BlockSums()
    sha, sums = _core.Sha256(), _core.BlockSums()
    with pytest.raises(CorruptModel):
        sha.update(kind(data), sums, _core.Scanner())
    alone.update(data)
    assert (sha.digest(), sums.finish()) == (hashlib.sha256(data).digest(), alone.finish())

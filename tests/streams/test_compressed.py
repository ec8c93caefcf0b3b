"""Compressed TFRecords that TensorFlow wrote: records by number, and files that lie."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import zlib
from contextlib import suppress
from typing import Any, Final

import pytest
from tests.streams.test_records import Counting
from tests.support.golden import GOLDEN
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import _core
from protoslice.detection.magic import masked
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.sources.files import BytesSource

FOLDER: Final = GOLDEN / "tfrecord"
EXPECTED: Final[dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
EXAMPLES: Final = [example(n) for n in range(60_000)]
PLAIN: Final = FRAMED["tfrecord"](EXAMPLES)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_records_are_those_of_tensorflow(name: str) -> None:
    with protoslice.records(FOLDER / f"{name}.tfrecord") as records:
        framing = "tfrecord_gzip" if name == "gzip" else "tfrecord_zlib"
        assert (records.framing, records.type, records.fault) == (framing, "tensorflow.Example", None)
        assert [hashlib.sha256(record).hexdigest()[:16] for record in records] == EXPECTED[name]
        assert bytes(records.rope()) == FRAMED["tfrecord"](list(records))
        assert bytes(records[3:9].rope("u64be")) == FRAMED["u64be"](records[[3, 4, 5, 6, 7, 8]])


def test_a_late_record_decompresses_nothing_before_its_point() -> None:
    source = Counting(gzip.compress(PLAIN, 1))
    index = protoslice.records(source, "tensorflow.Example").index_bytes
    for number in (59_000, 30_000, 45_000, 7):
        source.reads.clear()
        records = protoslice.records(source, "tensorflow.Example", index=index)
        assert records[number] == EXAMPLES[number]
        assert sum(length for _, length in source.reads) < len(source.read(0, source.size)) / 4


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_what_is_compressed_but_no_tfrecord_is_refused(compress: Any) -> None:
    with pytest.raises(Unsupported, match="framing"):
        protoslice.records(compress(FRAMED["u32le"](EXAMPLES[:9])))


def test_a_file_that_is_cut_keeps_the_records_before() -> None:
    data = gzip.compress(PLAIN[:1_000_000])
    records = protoslice.records(data[:-9])
    assert isinstance(records.fault, CorruptModel)
    assert list(records) == EXAMPLES[: len(records)]
    assert 5_000 < len(records) < len(EXAMPLES)
    changed = protoslice.records(data[:-8] + bytes([data[-8] ^ 1]) + data[-7:])
    assert "its records cannot be trusted" in str(changed.fault)


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_damage_within_a_compressed_file_is_said_and_no_record_is_wrong(compress: Any, share: float) -> None:
    noise = random.Random(1)
    given = [noise.randbytes(50) + b"x" * 150 for _ in range(5_000)]
    data = bytearray(compress(FRAMED["tfrecord"](given)))
    data[int(len(data) * share)] ^= 0x55
    records = protoslice.records(bytes(data))
    assert isinstance(records.fault, CorruptModel)
    read = _until_damage(records)
    assert read == given[: len(read)]
    assert len(given) * (share - 0.05) < len(read) < len(given)


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    packer = zlib.compressobj(9)
    head = (1 << 40).to_bytes(8, "little")
    head += masked(_core.crc32c(head)).to_bytes(4, "little")
    bomb = packer.compress(head) + packer.compress(bytes(1 << 24))
    zeros = zlib.compressobj(9, zlib.DEFLATED, -15)
    mebibytes = zeros.compress(bytes(1 << 24)) + zeros.flush(zlib.Z_FULL_FLUSH)
    bomb += packer.flush(zlib.Z_FULL_FLUSH) + mebibytes * 100
    with pytest.raises(LimitExceeded, match="64 times"):
        protoslice.records(bomb, framing="tfrecord_zlib")


def test_a_record_beyond_what_may_be_held_is_refused() -> None:
    data = zlib.compress(FRAMED["tfrecord"]([b"x", bytes(1 << 20)]))
    sources = _core.Sources([BytesSource(data)])
    records = _core.Records(_core.index_records(sources, "tfrecord_zlib"), limits=_core.Limits(held=1 << 19))
    assert records.read(sources, 0, 1, 0) == [b"x"]
    with pytest.raises(LimitExceeded, match="in memory"):
        records.rope(sources, [(1, 2)], None)


def _until_damage(records: Any) -> list[bytes]:
    """Records by number, before the first that is refused."""
    read = []
    with suppress(CorruptModel):
        for number in range(len(records)):
            read.append(records[number])
    return read

"""ArrayRecord files, files of chunks and compressed TFRecords: few reads give the records as their own readers do."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.streams.test_records import Counting
from tests.support.golden import GOLDEN
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import _core
from protoslice.detection.magic import masked
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.riegeli import RecordReader
from protoslice.sources.files import BytesSource
from protoslice.streams import Records
from protoslice.streams.framing import Framing

FOLDER: Final = GOLDEN / "array_record"
EXPECTED: Final[dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())


def stored(name: str) -> Path:
    return FOLDER / f"{name}.array_record"


@pytest.mark.parametrize("name", EXPECTED)
def test_the_records_are_those_of_its_own_reader(name: str) -> None:
    expected = EXPECTED[name]["records"]
    with protoslice.records(stored(name)) as records:
        assert (records.framing, len(records), records.fault) == ("array_record", len(expected), None)
        assert records.type == ("tensorflow.Example" if expected else None)
        assert [hashlib.sha256(record).hexdigest()[:16] for record in records] == expected
        assert list(records[::-7]) == list(records)[::-7]
        assert bytes(records.rope("u32le")) == FRAMED["u32le"](list(records))


def test_the_index_takes_a_few_reads_whatever_the_count() -> None:
    source = Counting(stored("default").read_bytes())
    index = protoslice.records(source, "tensorflow.Example").index_bytes
    assert len(source.reads) <= 10 < len(EXPECTED["default"]["records"])
    source.reads.clear()
    assert len(protoslice.records(source, "tensorflow.Example", index=index)[17]) == 0
    assert len(source.reads) <= 3


def test_without_a_footer_it_is_a_riegeli_file() -> None:
    whole = stored("uncompressed").read_bytes()
    assert protoslice.records(whole[:65536]).framing == "riegeli"
    named = protoslice.records(whole, framing="riegeli")
    assert list(named) == list(RecordReader(str(stored("uncompressed"))).read_records())
    assert len(named) > len(EXPECTED["uncompressed"]["records"])


def test_a_footer_that_is_damaged_names_the_framing_that_reads_without_it() -> None:
    whole = bytearray(stored("uncompressed").read_bytes())
    whole[65536 + 80] ^= 1  # of the message with the footer's position
    with pytest.raises(CorruptModel):
        protoslice.records(bytes(whole), framing="array_record")
    with pytest.raises(CorruptModel, match="framing riegeli"):
        protoslice.records(bytes(whole[:60_000]), framing="array_record")


def test_records_are_not_given_out_compressed() -> None:
    with pytest.raises(Unsupported, match="cannot be written as tfrecord_gzip"):
        protoslice.records(stored("default")).rope("tfrecord_gzip")


# Files of chunks that consist of other streams: riegeli and ArrayRecord.

BLOCK: Final = 1 << 16
CHUNKED: Final[tuple[Framing, ...]] = ("riegeli", "array_record")
SHAPES: Final = {
    "none": [],
    "one": [b"x"],
    "empty": [b""] * 40_000,
    "mixed": [random.Random(4).randbytes(size) for size in (0, 1, 5000, 65_536, 3, 200_000, 0, 70_000) * 3],
    "large": [b"a" * (3 << 20), b"", b"b" * ((1 << 20) + 1), b"c"],
    # Ends of chunks at each distance from a block's beginning.
    "ends": [bytes(size) for size in range(65_000, 65_500, 7)],
}


def made(records: list[bytes]) -> Records:
    return protoslice.records(FRAMED["u64le"](records), framing="u64le")


@pytest.mark.parametrize("form", CHUNKED)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_has_the_records_it_was_made_of(shape: str, form: Framing) -> None:
    records = SHAPES[shape]
    data = bytes(made(records).rope(form))
    with protoslice.records(data, framing=form) as again:
        assert (again.fault, list(again)) == (None, records)
    read = RecordReader(io.BytesIO(data)).read_records()
    # An ArrayRecord file's footer consists of records too: a description, the chunks, and three times the end.
    assert list(read)[: len(records)] == records
    if form == "array_record":
        assert len(data) % BLOCK == 0


@pytest.mark.parametrize("form", CHUNKED)
def test_its_framing_is_found(form: Framing) -> None:
    records = SHAPES["mixed"]
    assert protoslice.records(bytes(made(records).rope(form))).framing == form


@pytest.mark.parametrize("form", CHUNKED)
@pytest.mark.parametrize("name", ["default", "transposed", "uncompressed"])
def test_compressed_chunks_are_written_anew(name: str, form: Framing) -> None:
    with protoslice.records(stored(name)) as records:
        again = protoslice.records(bytes(records[3:17].rope(form)), framing=form)
        assert list(again) == list(records[3:17])


@pytest.mark.parametrize("form", CHUNKED)
def test_shards_are_one_file(tmp_path: Path, form: Framing) -> None:
    records = SHAPES["mixed"]
    for shard in range(3):
        (tmp_path / f"s-0000{shard}-of-00003").write_bytes(FRAMED["tfrecord"](records[8 * shard : 8 * shard + 8]))
    with protoslice.records(tmp_path) as shards:
        assert list(protoslice.records(bytes(shards.rope(form)), framing=form)) == records


def test_bytes_of_records_stay_where_they_are() -> None:
    records = SHAPES["mixed"]
    rope = made(records).rope("riegeli")
    literal = rope.size - sum(end - start for start, end in rope.core.extents(0, 0))
    assert literal < 40 * len(records) + 24 * rope.size // BLOCK + 200


def test_so_many_bytes_are_not_read_for_one_file() -> None:
    data = FRAMED["u64le"]([b"x" * 1000] * 10)
    index = _core.index_records(_core.Sources([BytesSource(data)]), "u64le")
    records = _core.Records(index, limits=_core.Limits(held=5000))
    with pytest.raises(LimitExceeded, match="ask for fewer"):
        records.rope(_core.Sources([BytesSource(data)]), [(0, 10)], "riegeli")


def test_a_length_that_lies_is_told() -> None:
    stream = _core.Rope([b"\xff" * 8 + b"abc"])
    with pytest.raises(CorruptModel, match="past the end"):
        _core.chunked(stream, _core.Sources([]), "riegeli")


def test_golden_files_of_riegeli_are_written_anew() -> None:
    for name in ("edges_uncompressed", "default", "transpose_default", "many_empty_default"):
        with protoslice.records(GOLDEN / f"riegeli/{name}.riegeli", framing="riegeli") as records:
            assert len(records) > 5
            assert list(protoslice.records(bytes(records.rope("riegeli")))) == list(records), name


# Compressed TFRecords that TensorFlow wrote: records by number, and files with wrong facts.

COMPRESSED_FOLDER: Final = GOLDEN / "tfrecord"
DIGESTS: Final[dict[str, Any]] = json.loads((COMPRESSED_FOLDER / "expected.json").read_text())
EXAMPLES: Final = [example(n) for n in range(60_000)]
PLAIN: Final = FRAMED["tfrecord"](EXAMPLES)


@pytest.mark.parametrize("name", DIGESTS)
def test_the_records_are_those_of_tensorflow(name: str) -> None:
    with protoslice.records(COMPRESSED_FOLDER / f"{name}.tfrecord") as records:
        framing = "tfrecord_gzip" if name == "gzip" else "tfrecord_zlib"
        assert (records.framing, records.type, records.fault) == (framing, "tensorflow.Example", None)
        assert [hashlib.sha256(record).hexdigest()[:16] for record in records] == DIGESTS[name]
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
    """Return the records by number, before the first refused one."""
    read = []
    with suppress(CorruptModel):
        for number in range(len(records)):
            read.append(records[number])
    return read

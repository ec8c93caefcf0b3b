"""Files of chunks made of other streams: riegeli and ArrayRecord."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Final

import pytest
from tests.streams.test_array_record import stored
from tests.support.golden import GOLDEN
from tests.support.streams import FRAMED

import protoslice
from protoslice import _core
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.riegeli import RecordReader
from protoslice.sources.files import BytesSource
from protoslice.streams import Records
from protoslice.streams.framing import Framing

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
    # The footer of an ArrayRecord file is records too: a description, the chunks, and three times the end.
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

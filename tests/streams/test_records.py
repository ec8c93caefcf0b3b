"""Records by number: every framing, whole files and cut ones, one read for those that lie near."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import MODELS, RIEGELI
from tests.support.streams import FRAMED, example

import protoslice
from protoslice.errors import CorruptModel, InvalidInput, Unsupported
from protoslice.riegeli import RecordReader, RecordsMetadata, RecordWriter
from protoslice.sources.files import BytesSource

EXAMPLES = [example(n) for n in range(200)]


@pytest.mark.parametrize("framing", FRAMED)
def test_a_stream_is_told_by_its_bytes(framing: str) -> None:
    with protoslice.records(FRAMED[framing](EXAMPLES)) as records:
        assert (records.framing, records.type, len(records)) == (framing, "tensorflow.Example", 200)
        assert list(records) == EXAMPLES
        assert records.fault is None


@pytest.mark.parametrize("framing", FRAMED)
@settings(max_examples=30)
@given(all=st.lists(st.binary(max_size=40), max_size=30), data=st.data())
def test_a_sequence_of_records_is_a_sequence(framing: str, all: list[bytes], data: st.DataObject) -> None:
    records = protoslice.records(FRAMED[framing](all), framing=framing)
    assert len(records) == len(all)
    assert list(records) == all
    some = data.draw(st.lists(st.integers(-len(all), len(all) - 1))) if all else []
    assert records[some] == [all[n] for n in some]
    part = data.draw(st.slices(len(all)))
    assert list(records[part]) == all[part]
    assert len(records[part]) == len(all[part])
    again = data.draw(st.slices(len(all[part])))
    assert list(records[part][again]) == all[part][again]
    assert bytes(records[part].rope("u64be")) == FRAMED["u64be"](all[part])


def test_a_saved_index_spares_the_pass() -> None:
    data = FRAMED["delimited"](EXAMPLES)
    index = protoslice.records(data).index_bytes
    source = Counting(data)
    records = protoslice.records(source, "tensorflow.Example", index=index)
    assert records[[3, 150, 4, 5]] == [EXAMPLES[n] for n in (3, 150, 4, 5)]
    assert len(source.reads) == 2
    assert sum(length for _, length in source.reads) < len(data) / 10


def test_numbers_come_in_any_iterable() -> None:
    records = protoslice.records(FRAMED["tfrecord"](EXAMPLES))
    wanted = [EXAMPLES[n] for n in (7, 0, 199)]
    numbers: Any
    for numbers in ([7, 0, -1], (7, 0, -1), np.array([7, 0, -1]), np.array([7, 0, 199], "u1"), {7: 1, 0: 1, -1: 1}):
        assert records[numbers] == wanted
        assert records[iter(numbers)] == wanted
    assert records[range(7, 5, -1)] == [EXAMPLES[7], EXAMPLES[6]]
    assert records[np.array([], int)] == []
    assert records[np.array([[4]])[0]] == [EXAMPLES[4]]
    for numbers in (np.int32(4), np.array(4)):
        assert records[numbers] == EXAMPLES[4]
    with pytest.raises(IndexError, match="No record 200"):
        records[np.array([200])]
    with pytest.raises(TypeError):
        records[["4"]]  # type: ignore[list-item]


def test_a_large_record_is_passed_over() -> None:
    source = Counting(FRAMED["u32be"]([b"\x0a\x01x", b"\0" * 3_000_000, b"\x0a\x01y"]))
    assert protoslice.records(source, framing="u32be")[2] == b"\x0a\x01y"
    assert sum(length for _, length in source.reads) < 1_000_000


def test_a_stream_that_is_cut_keeps_what_is_whole() -> None:
    data = FRAMED["delimited"](EXAMPLES)
    records = protoslice.records(data[:-1])
    assert list(records) == EXAMPLES[:-1]
    assert isinstance(records.fault, CorruptModel)
    assert records.fault.offset == len(data) - len(FRAMED["delimited"](EXAMPLES[-1:]))
    assert "ends inside a record" in records.fault.message


def test_a_riegeli_file_that_is_cut_keeps_the_records_that_its_reader_gives(tmp_path: Path) -> None:
    path = tmp_path / "cut.riegeli"
    with RecordWriter(str(path), options="uncompressed,chunk_size:100") as writer:
        writer.write_records(EXAMPLES)
    path.write_bytes(path.read_bytes()[:-10])
    reader = RecordReader(str(path))
    whole = list(reader.read_records())
    with protoslice.records(path) as records:
        assert list(records) == whole
        assert 0 < len(whole) < 200
        assert records.fault is not None
        assert records.fault.offset == reader.pos.chunk_begin


SOUND = [path for path in sorted(RIEGELI.glob("*.riegeli")) if not path.stem.startswith("bad_")]


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_riegeli_files_of_others(path: Path) -> None:
    whole = list(RecordReader(str(path)).read_records())
    with protoslice.records(path) as records:
        assert list(records) == records.all() == whole
        assert [records[n] for n in range(0, len(whole), 17)] == whole[::17]


def test_a_tfrecord_file_of_tensorflow() -> None:
    path = MODELS / "tf_sm_functions" / "assets.extra" / "tf_serving_warmup_requests"
    with protoslice.records(path) as records:
        assert (records.framing, records.type, records.fault) == ("tfrecord", "tensorflow.serving.PredictionLog", None)
        assert [record[:1] for record in records] == [b"\x32"] * len(records)
        assert bytes(records.rope()) == path.read_bytes() == FRAMED["tfrecord"](list(records))


def test_a_type_that_a_riegeli_file_declares(tmp_path: Path) -> None:
    path = tmp_path / "typed.riegeli"
    with RecordWriter(str(path), metadata=RecordsMetadata(record_type_name="my.Record")) as writer:
        writer.write_record(b"\x08\x01")
    with protoslice.records(path) as records:
        assert records.type == "my.Record"


def test_a_tfrecord_that_differs_from_its_checksum_is_an_error_of_its_own() -> None:
    data = bytearray(FRAMED["tfrecord"](EXAMPLES))
    start = len(FRAMED["tfrecord"](EXAMPLES[:7]))
    data[start + 15] ^= 1
    records = protoslice.records(bytes(data))
    assert records[6] == EXAMPLES[6]
    with pytest.raises(CorruptModel) as caught:
        records[7]
    assert caught.value.offset == start


@pytest.mark.parametrize("data", [b"", b"no records here", b"\xff" * 100, bytes(100), struct.pack("<I", 7)])
def test_bytes_that_are_no_stream_are_refused(data: bytes) -> None:
    with pytest.raises(Unsupported, match="framing"):
        protoslice.records(data)


def test_a_framing_that_is_unknown_is_refused() -> None:
    with pytest.raises(InvalidInput, match="delimited"):
        protoslice.records(b"\x01x", framing="csv")


def test_a_number_that_is_none_is_an_index_error() -> None:
    records = protoslice.records(b"\x02\x08\x01")
    for number in (1, -2, 1 << 70):
        with pytest.raises(IndexError, match="there are 1"):
            records[number]


def test_a_file_object_is_a_stream_too() -> None:
    assert list(protoslice.records(io.BytesIO(FRAMED["u32le"](EXAMPLES)))) == EXAMPLES


class Counting(BytesSource):
    """Bytes whose reads are noted."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int, /) -> bytes:
        self.reads.append((offset, length))
        return super().read(offset, length)

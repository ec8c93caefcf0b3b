"""Records by number and key, of one file and of shards, in every framing."""

from __future__ import annotations

import gzip
import io
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.golden import MODELS, RIEGELI
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import _core
from protoslice.concurrency import finish
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.riegeli import RecordReader, RecordsMetadata, RecordWriter
from protoslice.sources.files import BytesSource
from protoslice.streams.records import JoinedRecords, Shard
from protoslice.streams.selection import KeyIndex, RecordType
from protoslice.streams.shards import name_of, shards_among

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
    """Bytes whose reads are recorded."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int, /) -> bytes:
        self.reads.append((offset, length))
        return super().read(offset, length)


# Records by key: values whose hashes collide, bounded memory, long runs of one value.

VALUES = [b"a", b"b", b"", b"a", b"c" * 300, b"b", b"a"]
STEP = 8 << 12
"""The least number of bytes by which a table grows."""


def index(room: int = 1 << 20, path: str = "2", most: int = 10, values: list[bytes] = VALUES) -> KeyIndex:
    """Return the index of records with a field 2 of `values`; an empty value is a record without the field."""
    records = [b"\x08\x01" + (b"\x12" + _length(value) + value if value else b"") for value in values]
    found = KeyIndex(one(FRAMED["u32le"](records), "u32le"), RecordType(None, None), path, room, most)
    finish(found.steps())
    return found


def one(data: bytes, framing: str, **limits: int) -> JoinedRecords:
    """Return the records of one file of `data`."""
    source = BytesSource(data)
    index = _core.index_records(_core.Sources([source]), framing)
    return JoinedRecords([Shard("", _core.Records(index, limits=_core.Limits(**limits)), source)])


def _length(value: bytes) -> bytes:
    return bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])


@pytest.mark.parametrize("collide", [False, True])
def test_values_are_told_apart_even_if_their_hashes_collide(collide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if collide:
        monkeypatch.setattr(KeyIndex, "candidates", lambda *_: [n for n, value in enumerate(VALUES) if value])
    found = index().numbers(["a", "b", "c" * 300, "d", "", "b"])
    assert list(map(list, found)) == [[0, 3, 6], [1, 5], [4], [], [], [1, 5]]


def test_a_record_takes_eight_bytes_and_more_than_the_room_is_refused() -> None:
    assert index().weight == 6 * 8
    many = [b"%d" % number for number in range(STEP // 8 + 1)]
    assert index(STEP + 8, values=many).weight == STEP + 8
    with pytest.raises(LimitExceeded, match=f"take more than {STEP} bytes"):
        index(STEP, values=many)


def test_records_of_one_look_up_are_bounded() -> None:
    """A value of a million records, or one named a thousand times, is refused before a record is read."""
    assert len(index(most=6).numbers(["a", "a"])) == 2
    for values, most in ((["a"], 2), (["a", "a"], 5), (["a", "b"], 4)):
        with pytest.raises(LimitExceeded, match=r"records have"):
            index(most=most).numbers(values)


def test_a_path_that_no_record_has_is_said() -> None:
    with pytest.raises(NotFound):
        index(path="3")


def chunked(records: list[bytes], options: str, **limits: int) -> JoinedRecords:
    """Return `records` in a riegeli file."""
    file = io.BytesIO()
    with RecordWriter(file, options=options) as writer:
        writer.write_records(records)
    return one(file.getvalue(), "riegeli", **limits)


def test_a_packed_chunk_of_many_empty_records_is_read_in_steps() -> None:
    records = chunked([b""] * 1_000_000, "brotli,chunk_size:1G")
    # A chunk takes a byte of the file for each record, even for very few packed bytes.
    assert (records.count, records.shards[0].records.size) == (1_000_000, 1_000_064)
    steps = KeyIndex(records, RecordType(None, None), "2", 1 << 20, 10).steps()
    for _ in range(-(-1_000_000 // (1 << 16))):
        next(steps)
    with pytest.raises(NotFound):
        next(steps)


def test_keys_of_a_packed_file_are_read_chunk_by_chunk() -> None:
    """All records together have more bytes than one answer may decode."""
    all = [b"\x12\x04%04d\x1a\x64" % number + bytes(100) for number in range(5000)]
    records = chunked(all, "brotli:1,chunk_size:20k", held=100_000)
    found = KeyIndex(records, RecordType(None, None), "2", 1 << 20, 10)
    finish(found.steps())
    assert [list(numbers) for numbers in found.numbers(["0007", "4999", "5000"])] == [[7], [4999], []]


# Shards as one sequence: names, missing shards, and consecutive numbers of records.

SHARDS_EXAMPLES = [example(n) for n in range(100)]
CUTS = [0, 7, 7, 40, 41, 100]
"""The ends of shards; the second shard is empty."""


def sharded(folder: Path, framing: str = "tfrecord", cuts: list[int] = CUTS, name: str = "train") -> Path:
    folder.mkdir(exist_ok=True)
    for number, (start, stop) in enumerate(pairwise(cuts)):
        shard = folder / f"{name}-{number:05}-of-{len(cuts) - 1:05}.rec"
        shard.write_bytes(FRAMED[framing](SHARDS_EXAMPLES[start:stop]))
    return folder


@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("name", ["", "/", "/train@5.rec", "/train@*.rec", "/train-*", "/*.rec"])
def test_shards_are_one_sequence(framing: str, name: str, tmp_path: Path) -> None:
    with protoslice.records(f"{sharded(tmp_path / 'all', framing)}{name}", framing=framing) as records:
        assert (len(records), records.type, records.fault) == (100, "tensorflow.Example", None)
        assert list(records) == records.all() == SHARDS_EXAMPLES
        assert records[[99, 0, 7, 40, 40, -1]] == [SHARDS_EXAMPLES[n] for n in (99, 0, 7, 40, 40, 99)]
        assert bytes(records.rope()) == FRAMED[framing](SHARDS_EXAMPLES)
        assert bytes(records[30:60].rope("u64be")) == FRAMED["u64be"](SHARDS_EXAMPLES[30:60])
        assert bytes(records.record(41)) == SHARDS_EXAMPLES[41]
        with pytest.raises(IndexError, match="there are 100"):
            records[100]


def test_shards_that_have_to_be_decoded(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "gz")
    for path in folder.iterdir():
        path.write_bytes(gzip.compress(path.read_bytes()))
    with protoslice.records(folder) as records:
        assert (records.framing, list(records)) == ("tfrecord_gzip", SHARDS_EXAMPLES)
        assert bytes(records[5:50].rope("tfrecord")) == FRAMED["tfrecord"](SHARDS_EXAMPLES[5:50])


def joined(cuts: list[int], **bounds: int) -> tuple[protoslice.Records, JoinedRecords]:
    shards = []
    for start, stop in pairwise(cuts):
        source = BytesSource(FRAMED["u32le"](SHARDS_EXAMPLES[start:stop]))
        shards.append(Shard(f"{start}", _core.Records(_core.index_records(_core.Sources([source]), "u32le")), source))
    return protoslice.Records(shards, "tensorflow.Example"), JoinedRecords(shards, **bounds)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=st.lists(st.integers(0, 100), max_size=6), data=st.data())
def test_any_cut_is_the_same_sequence(cuts: list[int], data: st.DataObject) -> None:
    records, core = joined([0, *sorted(cuts), 100])
    some = data.draw(st.lists(st.integers(-100, 99), max_size=9))
    assert records[some] == [SHARDS_EXAMPLES[n] for n in some]
    part = data.draw(st.slices(100))
    assert list(records[part]) == SHARDS_EXAMPLES[part]
    assert bytes(records[part].rope("delimited")) == FRAMED["delimited"](SHARDS_EXAMPLES[part])
    start = data.draw(st.integers(0, 99))
    assert start < core.batch_end(start, 300) <= 100


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "all")
    (folder / "train-00003-of-00005.rec").unlink()
    for name in ("", "/train@5.rec", "/train-*"):
        with pytest.raises(NotFound, match=r"train@5.rec is missing 1 of its shards: train-00003-of-00005.rec$"):
            protoslice.records(f"{folder}{name}")
    with pytest.raises(NotFound, match="No file matches test-"):
        protoslice.records(folder / "test-*")


def test_a_folder_of_several_sets_names_them(tmp_path: Path) -> None:
    folder = sharded(sharded(tmp_path / "all"), name="test")
    with pytest.raises(InvalidInput, match=r"several sets of shards: choose one of test@5.rec, train@5.rec"):
        protoslice.records(folder)
    assert len(protoslice.records(folder / "test@*.rec")) == 100
    with pytest.raises(InvalidInput, match="no shards"):
        protoslice.records(tmp_path)


def test_shards_have_a_name_in_common() -> None:
    assert name_of([f"x/train-{n:05}-of-00002.tfrecord" for n in range(2)]) == "x/train@2.tfrecord"
    assert name_of(["x/day1", "x/day2"], "x/day*") == "x/day*"
    assert name_of(["a-00000-of-00001", "day2"], "*") == "*"


def test_numbers_that_lie_take_no_time() -> None:
    with pytest.raises(NotFound, match="is missing 999999999999999998 of its shards: a-00000-of-999999999999999999, "):
        shards_among(["a-00007-of-999999999999999999"])
    with pytest.raises(InvalidInput, match="number is too high, 8"):
        shards_among([f"a-{n:05}-of-00002" for n in (0, 8)])
    with pytest.raises(LimitExceeded, match="5000 shards"):
        shards_among([f"a-{n:05}-of-05000" for n in range(5000)])


def test_pattern_that_is_long_or_has_many_brackets_is_refused() -> None:
    assert shards_among(["day1", "day2"], "day" + "[1-2]" * 1) == ["day1", "day2"]
    for pattern in ("[" * 33, "*" + "a" * 1024, "é" * 600 + "*"):
        with pytest.raises(InvalidInput, match="at most 1024 bytes and 32 brackets"):
            shards_among(["day1"], pattern)


def test_a_shard_that_is_cut_is_named_and_ends_alone(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "all")
    cut = folder / "train-00002-of-00005.rec"
    cut.write_bytes(cut.read_bytes()[:-1])
    with protoslice.records(folder) as records:
        assert list(records) == SHARDS_EXAMPLES[:39] + SHARDS_EXAMPLES[40:]
        assert "train-00002-of-00005.rec: " in str(records.fault)


def test_an_answer_over_shards_is_bounded() -> None:
    _, core = joined(list(range(0, 101, 10)), pieces=30, held=1 << 20)
    with pytest.raises(LimitExceeded, match="fewer at a time"):
        core.rope([(0, 100)], "u64be")
    with pytest.raises(LimitExceeded, match="between shards more than 8 times"):
        core.views([(0, 100)], "delimited", None, None, "1")
    _, core = joined([0, 50, 100], held=100)
    with pytest.raises(LimitExceeded, match="fewer at a time"):
        core.rope([(0, 100)], "u64be")

"""Readers and writers of records: their behavior beyond the golden files."""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from google.protobuf.struct_pb2 import Value
from hypothesis import given, settings
from hypothesis import strategies as st

from protoslice import errors, riegeli
from protoslice.errors import CorruptModel, InvalidInput, NotFound, StorageError
from protoslice.riegeli import RecordPosition, RecordReader, RecordsMetadata, RecordWriter, SkippedRegion
from protoslice.sources.files import BytesSource

BLOCK = 1 << 16


def written(records: list[bytes], options: str = "") -> bytes:
    file = io.BytesIO()
    with RecordWriter(file, options=options) as writer:
        writer.write_records(records)
    return file.getvalue()


def read(data: bytes) -> list[bytes]:
    with RecordReader(data) as reader:
        return list(reader.read_records())


edges = st.one_of(st.integers(0, 3), st.integers(BLOCK - 200, BLOCK + 50), st.integers(2 * BLOCK - 200, 2 * BLOCK))
choices = st.sampled_from(
    ["", "uncompressed", "uncompressed,chunk_size:1M", "zstd:1,padding:4K", "snappy,chunk_size:10", "transpose,zstd"]
)


@settings(max_examples=60)
@given(st.lists(edges, max_size=6), choices)
def test_what_is_written_is_read(sizes: list[int], options: str) -> None:
    records = [random.Random(size).randbytes(size) for size in sizes]
    assert read(written(records, options)) == records


@settings(max_examples=60)
@given(st.integers(0, 10**18), st.binary(max_size=200))
def test_any_bytes_are_an_error_or_nothing(numeric: int, data: bytes) -> None:
    for source in (data, written([b"x"] * 5) + data, data + written([b"x"] * 5)):
        for recovery in (None, lambda _: True):
            reader = RecordReader(source, recovery=recovery)
            with contextlib.suppress(CorruptModel, NotFound):
                reader.seek_numeric(numeric % (len(source) + 2))
                assert all(isinstance(record, bytes) for record in reader.read_records())
                reader.close()


def test_messages() -> None:
    messages = [Value(string_value="a" * i) for i in range(50)] + [Value(number_value=2.5)]
    file = io.BytesIO()
    with RecordWriter(file, options="transpose") as writer:
        writer.write_messages(messages)
    with RecordReader(file) as reader:
        assert list(reader.read_messages(Value)) == messages
        reader.seek_numeric(66)
        assert reader.read_message(Value) == messages[2]


def test_a_record_that_is_no_message_is_damage() -> None:
    data = written([Value(bool_value=True).SerializeToString(), b"\xff", Value(number_value=1).SerializeToString()])
    with RecordReader(data) as reader:
        reader.read_message(Value)
        with pytest.raises(CorruptModel, match=r"64/1 is not a google\.protobuf\.Value"):
            reader.read_message(Value)
    regions: list[SkippedRegion] = []
    with RecordReader(data, recovery=regions.append) as reader:
        assert [v.WhichOneof("kind") for v in reader.read_messages(Value)] == ["bool_value", "number_value"]
    assert [(region.begin, region.end, region.length) for region in regions] == [(65, 66, 1)]


def damaged() -> bytes:
    data = bytearray(written([b"a" * 5000, b"b" * 5000, b"c" * 5000], "uncompressed"))
    data[6000] ^= 1
    return bytes(data)


def test_recovery_may_stop_the_reading() -> None:
    def stop(region: SkippedRegion) -> bool:
        raise StopIteration

    for recovery in (stop, lambda _: False):
        with RecordReader(damaged(), recovery=recovery) as reader:
            assert [record[:1] for record in reader.read_records()] == [b"a"]
            assert reader.read_record() == b"c" * 5000


def test_recovery_may_stop_the_reading_where_it_seeks() -> None:
    data = damaged()
    with RecordReader(data) as reader:
        reader.read_record()
        damage = reader.pos
    inside = RecordPosition(damage.chunk_begin, 1)  # must be decoded to be found
    with RecordReader(data, recovery=lambda _: False) as reader:
        reader.seek(inside)
        assert list(reader.read_records()) == []
        assert list(reader.read_records()) == [b"c" * 5000]
        reader.seek(inside)
        reader.seek(RecordPosition(64))
        assert next(reader.read_records()) == b"a" * 5000
    with RecordReader(data, recovery=lambda _: True) as reader:
        reader.seek(inside)
        assert list(reader.read_records()) == [b"c" * 5000]


def test_recovery_may_raise_what_it_likes() -> None:
    def fail(region: SkippedRegion) -> None:
        raise RuntimeError(str(region))

    reader = RecordReader(damaged(), recovery=fail)
    with pytest.raises(RuntimeError, match="data hash mismatch"):
        list(reader.read_records())


def test_damage_in_a_big_record_is_found_while_it_is_read() -> None:
    data = bytearray(written([b"a" * 200_000, b"b" * 200_000, b"c"], "uncompressed"))
    data[300_000] ^= 1
    with RecordReader(bytes(data)) as reader:
        assert reader.read_record() == b"a" * 200_000
        with pytest.raises(errors.CorruptModel, match="chunk data hash mismatch"):
            reader.read_record()
        assert reader.last_pos == RecordPosition(64)
    with RecordReader(bytes(data), recovery=lambda _: True) as reader:
        assert list(reader.read_records()) == [b"a" * 200_000, b"c"]


def test_a_block_header_within_a_big_record_is_checked(tmp_path: Path) -> None:
    data = bytearray(written([b"a" * 200_000], "uncompressed"))
    data[2 * BLOCK + 3] ^= 1
    path = tmp_path / "records.riegeli"
    path.write_bytes(data)
    for source in (bytes(data), path):
        with RecordReader(source) as reader, pytest.raises(CorruptModel, match="block at 131072"):
            reader.read_record()


def test_an_error_within_the_body_is_not_hidden_by_closing() -> None:
    def work() -> None:
        with RecordReader(written([b"abc"])[:-1]) as reader:
            assert reader.read_record() is None
            raise KeyError("mine")

    with pytest.raises(KeyError):
        work()


def before_or_after(wanted: bytes) -> Callable[[bytes], int]:
    return lambda record: (record > wanted) - (record < wanted)


def test_searching() -> None:
    records = [f"{i:06}".encode() for i in range(0, 3000, 3)]
    for options in ("uncompressed", "zstd,chunk_size:2K"):
        with RecordReader(written(records, options)) as reader:
            for wanted, found in [(b"000000", 0), (b"000004", 2), (b"002997", 999), (b"000300", 100)]:
                reader.search_for_record(before_or_after(wanted))
                assert reader.read_record() == records[found]
            reader.search_for_record(lambda _: -1)
            assert reader.read_record() is None
            reader.search_for_record(lambda _: None)


def test_searching_messages() -> None:
    data = written([Value(number_value=i).SerializeToString() for i in range(100)])
    with RecordReader(data) as reader:
        reader.search_for_message(Value, lambda value: -1 if value.number_value < 42 else 1)
        assert reader.read_message(Value) == Value(number_value=42)


def test_metadata_are_written_and_read() -> None:
    metadata = RecordsMetadata(file_comment="models", num_records=1)
    for options in ("uncompressed", "zstd", "brotli:1,transpose"):
        file = io.BytesIO()
        with RecordWriter(file, options=options, metadata=metadata) as writer:
            writer.write_record(b"one")
        with RecordReader(file) as reader:
            assert reader.read_metadata() == metadata
            assert list(reader.read_records()) == [b"one"]
    file = io.BytesIO()
    RecordWriter(file, serialized_metadata=b"\xff").close()
    with RecordReader(file) as reader:
        assert reader.read_serialized_metadata() == b"\xff"
        with pytest.raises(CorruptModel, match="metadata"):
            reader.read_metadata()


def test_positions() -> None:
    position = RecordPosition(70_000, 3)
    assert position.numeric == 70_003
    assert str(position) == "70000/3"
    assert RecordPosition.from_bytes(position.to_bytes()) == position
    assert RecordPosition(64, 5) < RecordPosition(65) < RecordPosition(65, 1)
    for begin, index in ((-1, 0), (1 << 64, 0), ((1 << 64) - 1, 1), (0, -1)):
        with pytest.raises(InvalidInput, match="not a record position"):
            RecordPosition(begin, index)
    with pytest.raises(InvalidInput, match="16 bytes"):
        RecordPosition.from_bytes(b"x")


def test_there_is_no_last_position_before_a_record() -> None:
    with RecordReader(b"") as reader, pytest.raises(NotFound, match="No position yet"):
        assert reader.last_pos
    with RecordWriter(io.BytesIO()) as writer, pytest.raises(NotFound, match="No position yet"):
        assert writer.last_pos


def test_negative_positions_are_refused() -> None:
    with RecordReader(b"") as reader, pytest.raises(InvalidInput):
        reader.seek_numeric(-1)


def test_closed_means_closed(tmp_path: Path) -> None:
    reader = RecordReader(b"")
    reader.close()
    reader.close()
    with pytest.raises(InvalidInput, match="closed"):
        reader.read_record()
    writer = RecordWriter(tmp_path / "x")
    writer.close()
    writer.close()
    with pytest.raises(InvalidInput, match="closed"):
        writer.write_record(b"")


@pytest.mark.parametrize(
    "options", ["nonsense", "zstd:99", "zstd,brotli", "chunk_size:0", "uncompressed,window_log:20"]
)
def test_wrong_options_are_named(options: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="options of the riegeli writer"):
        RecordWriter(tmp_path / "x", options=options)
    assert not (tmp_path / "x").exists()


def test_storage_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        RecordWriter(tmp_path / "nowhere" / "x")
    with pytest.raises(NotFound, match="nowhere"):
        RecordReader(tmp_path / "nowhere")


def test_writing_that_fails_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writers = [RecordWriter(path, options="uncompressed") for _ in range(2)]
    os.close(end)
    writers[1].write_record(b"small")
    with pytest.raises(StorageError, match=r"Cannot write .*pipe"):
        writers[0].write_record(bytes(1 << 20))
    with pytest.raises(StorageError, match=r"Cannot write .*pipe"):
        writers[1].flush()


def test_a_file_object_need_not_know_how_to_flush_or_seek() -> None:
    class Bare:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes) -> None:
            self.data += data

    bare = Bare()
    with RecordWriter(cast(BinaryIO, bare)) as writer:
        assert writer.pos == RecordPosition(64)
        writer.write_message(Value(number_value=1))
        assert writer.pos == RecordPosition(64, 1)
    assert read(bare.data) == [Value(number_value=1).SerializeToString()]


def test_messages_end_where_recovery_stops() -> None:
    with RecordReader(written([b"\xff", b""]), recovery=lambda _: False) as reader:
        assert reader.read_message(Value) is None
        assert reader.read_message(Value) == Value()


def test_a_source_that_fails_is_the_error_itself() -> None:
    class Broken(BytesSource):
        def read(self, offset: int, length: int, /) -> bytes:
            if offset > 64:
                raise ConnectionResetError("gone")
            return super().read(offset, length)

    for recovery in (None, lambda _: True):
        reader = RecordReader(Broken(written([b"a" * 9000, b"b"], "uncompressed")), recovery=recovery)
        with pytest.raises(ConnectionResetError, match="gone"):
            list(reader.read_records())


def test_a_source_that_gives_too_little_is_an_error() -> None:
    class Short(BytesSource):
        def read(self, offset: int, length: int, /) -> bytes:
            return super().read(offset, length)[:-1]

    with pytest.raises(StorageError, match="63 bytes instead of 64"):
        RecordReader(Short(written([b"a"]))).read_record()


def test_a_writer_that_failed_stays_failed() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            if self.tell() > 100:
                raise OSError(28, "No space left on device")
            return super().write(cast(bytes, data))

    writer = RecordWriter(Full(), options="uncompressed")
    writer.write_record(b"a" * 9000)
    full = Full(bytes(200))
    full.seek(200)
    other = RecordWriter(full, options="uncompressed,chunk_size:1M")
    other.write_record(b"a" * 9000)
    with pytest.raises(OSError, match="No space"):
        other.close()
    with pytest.raises(OSError, match="No space"):
        writer.write_record(b"a" * 9000)
    with pytest.raises(errors.Unsupported, match="incomplete"):
        writer.write_record(b"a")
    with pytest.raises(errors.Unsupported, match="incomplete"):
        writer.close()


def test_files_that_take_little_at_a_time_get_everything() -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.data += cast(bytes, data)[:1000]
            return min(len(cast(bytes, data)), 1000)

    slow = Slow()
    with RecordWriter(cast(BinaryIO, slow), options="uncompressed") as writer:
        writer.write_record(b"a" * 100_000)
    assert read(bytes(slow.data)) == [b"a" * 100_000]


def test_records_may_be_any_bytes_like() -> None:
    data = io.BytesIO()
    with RecordWriter(data) as writer:
        writer.write_records([b"a", bytearray(b"b"), memoryview(b"c")])
    assert read(data.getvalue()) == [b"a", b"b", b"c"]


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    with RecordWriter(path) as writer:
        writer.write_record(b"a")
        writer.flush()
        with RecordReader(path) as reader:
            assert list(reader.read_records()) == [b"a"]
            position = reader.pos
        writer.write_record(b"b")
    with RecordReader(path) as reader:
        reader.seek(position)
        assert list(reader.read_records()) == [b"b"]


def test_getting_over_damage_while_seeking() -> None:
    data = bytearray(written([bytes([65 + i]) * 50_000 for i in range(8)], "uncompressed"))
    data[150_250] ^= 1  # the header of the fourth chunk
    regions: list[SkippedRegion] = []
    with RecordReader(bytes(data), recovery=regions.append) as reader:
        reader.seek_numeric(len(data) - 1)
        reader.seek_numeric(190_000)
        assert reader.read_record() == b"E" * 50_000
        assert reader.read_record() == b"F" * 50_000
    assert [(region.begin, region.end) for region in regions] == [(150_247, 200_316)]


GROWTH = """
import sys
from pathlib import Path
from protoslice.riegeli import RecordReader, RecordWriter

def high_water():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10

record = bytes(1 << 20)
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here, and not from what our parent had
before = high_water()
with RecordWriter(sys.argv[1], options=sys.argv[2]) as writer:
    for _ in range(128):
        writer.write_record(record)
with RecordReader(sys.argv[1]) as reader:
    assert sum(len(record) for record in reader.read_records()) == 128 << 20
print(high_water() - before)
"""


@pytest.mark.parametrize("options", ["uncompressed", "zstd:1"])
def test_memory_does_not_grow_with_the_file(options: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", GROWTH, str(tmp_path / "x"), options]
    mebibytes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert mebibytes < 24


def test_the_public_names_are_exact() -> None:
    ours = {name for name, value in vars(riegeli).items() if getattr(value, "__module__", "") == riegeli.__name__}
    assert set(riegeli.__all__) == {name for name in ours if name[0] != "_"} | {"RecordsMetadata"}

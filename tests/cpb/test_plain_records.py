"""Record files that hold no chunked proto, though their records may parse as its metadata."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.support.chunked import METADATA, TYPES, M, chunked, file_of, fill

import protoslice
from protoslice import _core
from protoslice.errors import InconsistentChunks, NotFound, Unsupported
from protoslice.merging import Merger
from protoslice.riegeli import RecordReader, RecordWriter
from protoslice.schema import bundled

EXAMPLE = bundled().message_class("tensorflow.NodeDef")


def records(*contents: bytes, times: int = 1, options: str = "") -> bytes:
    """A riegeli file of `contents`, `times` over."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for content in contents * times:
            writer.write_record(content)
    return out.getvalue()


def metadata(*chunks: dict[str, int], message: bytes = b"\x08\x00", version: bytes = b"") -> bytes:
    """A serialized `ChunkMetadata`, of which each part can be left out."""
    found: Any = METADATA()
    for chunk in chunks:
        found.chunks.add(**chunk)
    found.message.MergeFromString(message)
    found.version.MergeFromString(version)
    return bytes(found.SerializeToString())


CASES = {
    "empty records": b"",
    "a version alone": b"\x0a\x02\x08\x01",
    "unknown fields": b"\x22\x05hello\x28\x07",
    "a field of another wire type": b"\x08\x01\x10\x02\x18\x03",
    "a message": EXAMPLE(name="conv1", op="Const", input=["a", "b"]).SerializeToString(),
    "no chunks, but a place for them": metadata(),
    "chunks, but no place for them": metadata({"offset": 64, "size": 4}, message=b""),
    "a field that metadata does not have": metadata({"offset": 64, "size": 4}) + b"\x22\x00",
    "a field that a chunk does not have": metadata({"offset": 64, "size": 4}) + b"\x12\x02\x20\x01",
    "a field that a message does not have": metadata({"offset": 64, "size": 4}, message=b"\x08\x00\x18\x01"),
    "text": b"the quick brown fox",
    "Invalid depth": b"\xff\xff\xff\xff",
    "a dotted name, like a manifest of no records": b"\x0a\x0bexample.com",
    "a dotted name and a text, like a manifest": b"\x0a\x0bexample.com\x12\x05hello",
    "a dotted name and an empty text": b"\x0a\x0bexample.com\x12\x00",
}


@pytest.mark.parametrize("options", ["", "uncompressed", "transpose", "uncompressed,chunk_size:1"])
@pytest.mark.parametrize("record", CASES.values(), ids=CASES)
def test_a_plain_record_file_is_said_to_be_one(record: bytes, options: str) -> None:
    with pytest.raises(Unsupported, match="a riegeli file of 50 records, not a chunked proto") as caught:
        protoslice.open(records(record, times=50, options=options), "t.M", types=TYPES)
    assert "protoslice.riegeli" in caught.value.message


@pytest.mark.parametrize("record", CASES.values(), ids=CASES)
def test_the_merger_says_so_too(record: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.cpb").write_bytes(records(record, times=50))
    into = M(i32=3)
    with pytest.raises(Unsupported, match="not a chunked proto"):
        Merger.read(tmp_path / "x", into)
    assert into == M(i32=3)


def test_thousands_of_records_are_counted() -> None:
    with pytest.raises(Unsupported, match="of 5000 records"):
        protoslice.open(records(b"", times=5000))


def test_a_file_of_many_chunks_is_not_walked_through_for_a_message() -> None:
    with pytest.raises(Unsupported, match="of more than 256 records"):
        protoslice.open(records(b"x", times=1000, options="uncompressed,chunk_size:1"))


def test_a_file_without_records_says_that() -> None:
    with pytest.raises(Unsupported, match="a riegeli file of 0 records"):
        protoslice.open(records())


@pytest.mark.parametrize("proto", [M(), M(i32=1)], ids=["empty", "tiny"])
def test_what_is_written_here_is_read_however_small_it_is(proto: Any, tmp_path: Path) -> None:
    file = protoslice.open(proto.SerializeToString(), "t.M", types=TYPES).chunks.cpb().read()
    with protoslice.open(file, "t.M", types=TYPES) as again:
        assert again.rope.read() == proto.SerializeToString()
    (tmp_path / "x.cpb").write_bytes(file)
    into = M()
    Merger.read(tmp_path / "x", into)
    assert into == proto


def test_metadata_that_gives_neither_sizes_nor_kinds_is_metadata() -> None:
    """All that is asked of it is that it says where chunks lie, and where they belong."""
    file = records(b"\x18\x07", metadata({"offset": 64}), options="uncompressed")
    with protoslice.open(file, "t.M", types=TYPES) as proto:
        assert proto.rope.read() == b"\x18\x07"


def test_metadata_whose_chunks_are_elsewhere_is_broken_rather_than_plain_records() -> None:
    with pytest.raises(InconsistentChunks, match="no record starts"):
        protoslice.open(records(b"\x18\x07", metadata({"offset": 99, "size": 2})), "t.M", types=TYPES)
    found: Any = METADATA()
    fill(found.message, 7)
    with pytest.raises(InconsistentChunks, match="only 1 chunks"):
        protoslice.open(file_of([M()], found), "t.M", types=TYPES)


def test_a_last_record_too_large_for_metadata_is_not_read() -> None:
    file = records(bytes(100_000), options="zstd")
    with pytest.raises(Unsupported, match="its last chunk holds 100000 bytes, too many for metadata"):
        protoslice.open(file, "t.M", types=TYPES, limits=_core.Limits(metadata=99_999))


def test_a_record_after_the_metadata_hides_it() -> None:
    with RecordReader(chunked([M(i32=1)], 0)) as reader:
        contents = list(reader.read_records())
    with pytest.raises(Unsupported, match="not a chunked proto"):
        protoslice.open(records(*contents, b""), "t.M", types=TYPES)


def test_no_such_file_stays_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Merger.read(tmp_path / "nothing", M())

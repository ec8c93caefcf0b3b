"""Records by key: values whose hashes collide, memory that is bounded, long runs of one value."""

from __future__ import annotations

import io

import pytest
from tests.support.streams import FRAMED

from protoslice import _core
from protoslice.concurrency import finish
from protoslice.errors import LimitExceeded, NotFound
from protoslice.riegeli import RecordWriter
from protoslice.sources.files import BytesSource
from protoslice.streams.records import JoinedRecords, Shard
from protoslice.streams.selection import KeyIndex, RecordType

VALUES = [b"a", b"b", b"", b"a", b"c" * 300, b"b", b"a"]
STEP = 8 << 12
"""Bytes of memory that a table grows by, at least."""


def index(room: int = 1 << 20, path: str = "2", most: int = 10, values: list[bytes] = VALUES) -> KeyIndex:
    """The index of records with a field 2 of `values`; an empty value is a record without it."""
    records = [b"\x08\x01" + (b"\x12" + _length(value) + value if value else b"") for value in values]
    found = KeyIndex(one(FRAMED["u32le"](records), "u32le"), RecordType(None, None), path, room, most)
    finish(found.steps())
    return found


def one(data: bytes, framing: str, **limits: int) -> JoinedRecords:
    """The records of one file of `data`."""
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
    """`records` in a riegeli file."""
    file = io.BytesIO()
    with RecordWriter(file, options=options) as writer:
        writer.write_records(records)
    return one(file.getvalue(), "riegeli", **limits)


def test_a_packed_chunk_of_many_empty_records_is_read_in_steps() -> None:
    records = chunked([b""] * 1_000_000, "brotli,chunk_size:1G")
    # A chunk takes a byte of the file for each record, however few its packed bytes are.
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

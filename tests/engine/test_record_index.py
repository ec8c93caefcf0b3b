"""The index of a stream through the glue: the same by pieces and by source, errors as public classes."""

from __future__ import annotations

import pytest

from protoslice import _core
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.sources.files import BytesSource

STREAM = b"\x03abc\x00\x02de"


def test_pieces_and_a_source_give_the_same_index() -> None:
    scanner = _core.RecordScanner("delimited")
    for at in range(len(STREAM)):
        scanner.feed(STREAM[at : at + 1])
    saved = scanner.finish(len(STREAM))
    assert saved == _core.index_records(_sources(STREAM), "delimited")
    records = _core.Records(saved)
    assert (records.count, records.end, records.size, records.fault) == (3, 8, 8, None)
    assert [records.place(n) for n in range(3)] == [(0, 1, 4, 4), (4, 5, 5, 5), (5, 6, 8, 8)]
    assert records.read(_sources(STREAM), 0, 3, 100) == [b"abc", b"", b"de"]


def test_long_records_are_passed_over() -> None:
    scanner = _core.RecordScanner("u64le")
    scanner.feed((1 << 40).to_bytes(8, "little"))
    assert scanner.jump() == (1 << 40) + 8
    scanner.feed(bytes(8))
    records = _core.Records(scanner.finish((1 << 40) + 16))
    assert (records.count, records.place(1)) == (2, ((1 << 40) + 8, *[(1 << 40) + 16] * 3))


def test_ranges_come_as_one_rope_in_the_framing_that_is_asked_for() -> None:
    records = _core.Records(_core.index_records(_sources(STREAM), "delimited"))
    rope = records.rope(_sources(STREAM), [(2, 3), (0, 2)], "u32be")
    sources = _sources(STREAM)
    assert sources.read(rope, 0, rope.size) == b"\0\0\0\x02de\0\0\0\x03abc\0\0\0\0"
    as_it_lies = records.rope(sources, [(0, 3)], "delimited")
    assert as_it_lies.pieces() == [(0, 0, len(STREAM))]


def test_a_stream_that_is_cut_says_where_and_keeps_the_rest() -> None:
    records = _core.Records(_core.index_records(_sources(STREAM[:-1]), "delimited"))
    assert records.count == 2
    assert records.fault == (5, "the stream ends inside a record of 2 bytes")


def test_each_error_is_a_class_of_its_own() -> None:
    saved = _core.index_records(_sources(STREAM), "delimited")
    with pytest.raises(InvalidInput, match="tfrecord, delimited"):
        _core.RecordScanner("csv")
    for framing in ("riegeli", "array_record"):
        with pytest.raises(Unsupported, match=f"{framing} files cannot be indexed in parts"):
            _core.RecordScanner(framing)
    with pytest.raises(NotFound, match="no record 3: the stream has 3"):
        _core.Records(saved).place(3)
    with pytest.raises(IntegrityError):
        _core.Records(saved[:-1] + b"x")
    with pytest.raises(LimitExceeded, match="shards"):
        _core.index_records(_sources(STREAM), "delimited", limits=_core.Limits(records=0))


def _sources(data: bytes) -> _core.Sources:
    return _core.Sources([BytesSource(data)])

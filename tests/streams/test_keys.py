"""Records by key: values whose hashes collide, memory that is bounded, long runs of one value."""

from __future__ import annotations

import pytest
from tests.support.streams import FRAMED

from protoslice import _core
from protoslice.errors import LimitExceeded, NotFound
from protoslice.sources.files import BytesSource
from protoslice.streams import keys
from protoslice.streams.keys import KeyIndex, RecordType

VALUES = [b"a", b"b", b"", b"a", b"c" * 300, b"b", b"a"]


def index(room: int = 1 << 20, path: str = "2") -> KeyIndex:
    """The index of records with a field 2 of `VALUES`; an empty value is a record without it."""
    records = [b"\x08\x01" + (b"\x12" + _length(value) + value if value else b"") for value in VALUES]
    sources = _core.Sources([BytesSource(FRAMED["u32le"](records))])
    found = KeyIndex(_core.Records(_core.index_records(sources, "u32le")), sources, RecordType(None, None), path, room)
    for _ in found.steps():
        pass
    return found


def _length(value: bytes) -> bytes:
    return bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])


@pytest.mark.parametrize("collide", [False, True])
def test_values_are_told_apart_even_if_their_hashes_collide(collide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if collide:
        monkeypatch.setattr(keys, "_hash", lambda _: 7)
    found = index()
    assert [list(found.numbers(value)) for value in ("a", "b", "c" * 300, "d", "")] == [[0, 3, 6], [1, 5], [4], [], []]


def test_more_keys_than_the_memory_holds_are_refused() -> None:
    assert index(6 * 16).weight == 6 * 16
    with pytest.raises(LimitExceeded, match="the keys of 6 records take more than 95 bytes"):
        index(95)


def test_a_path_that_no_record_has_is_said() -> None:
    with pytest.raises(NotFound):
        index(path="3")

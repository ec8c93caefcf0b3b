"""The records of a pax extended header: `length key=value` lines, of which only a few matter here."""

from __future__ import annotations

import re
from typing import Final

from protoslice.errors import CorruptModel
from protoslice.server.bodies.tar_header import LARGEST_NUMBER

_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,18}) ")
_SPARSE: Final = (b"GNU.sparse.", b"SCHILY.realsize")
SPARSE: Final = b"sparse"


def parse_records(data: bytes, offset: int) -> dict[bytes, bytes]:
    """Records `path` and `size` of the extended header at `offset`, and `sparse` for a sparse file."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        key, value, end = _record(data, position, offset)
        if key in {b"path", b"size"}:
            found[key] = value
        elif key.startswith(_SPARSE):
            found[SPARSE] = key
        position = end
    return found


def size_in(records: dict[bytes, bytes], offset: int) -> int | None:
    """The size that the records give, if they give one."""
    text = records.get(b"size")
    if not text:
        return None
    if not re.fullmatch(rb"[0-9]{1,19}", text) or int(text) > LARGEST_NUMBER:
        raise CorruptModel(f"The pax header has an invalid size {text[:40]!r}", offset)
    return int(text)


def _record(data: bytes, position: int, offset: int) -> tuple[bytes, bytes, int]:
    match = _LENGTH.match(data, position)
    end = position + int(match[1]) if match else 0
    if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
        raise CorruptModel("The pax header has a record that is not `length key=value`", offset + position)
    key, equals, value = data[match.end() : end - 1].partition(b"=")
    if not equals:
        raise CorruptModel("The pax header has a record without =", offset + position)
    return key, value, end

"""Recognition of Paddle's programs in JSON, and of its parameter files, which have no magic, by the first tensor."""

from __future__ import annotations

from typing import Final

from protoslice import varints

PROGRAM: Final = "paddle.framework.proto.ProgramDesc"
"""Message type of a program, which one in JSON is shown as too."""

_MOST_LEVELS = 1024
_MOST_ROWS = 1 << 20
_MOST_DESC = 4096
_LAST_TYPE = 38
_TYPE, _DIM, _DIMS = 0x08, 0x10, 0x12
"""Tags of a TensorDesc: its data type, one dimension, and all of them packed."""


def is_json_program(head: bytes) -> bool:
    """True when `head` begins a program in the JSON of Paddle 3."""
    head = head[:256].lstrip()
    return head[:1] == b"{" and b'"base_code"' in head and b'"pir"' in head


def is_parameters(head: bytes) -> bool:
    """True when `head` begins a file of Paddle's tensors, alone or one after the other."""
    return _begins_tensor(head, _after_levels(head)) or has_rows(head)


def has_rows(head: bytes) -> bool:
    """True when `head` begins a file with selected rows of one tensor."""
    # The levels of a dense tensor and the rows of a sparse one are counted by the same eight bytes.
    return not _begins_tensor(head, _after_levels(head)) and _begins_tensor(head, _after_rows(head))


def _after_levels(head: bytes) -> int | None:
    """Offset behind the levels of detail; None where they make no sense."""
    levels, at = int.from_bytes(head[4:12], "little"), 12
    if levels > _MOST_LEVELS:
        return None
    for _ in range(levels):
        length = int.from_bytes(head[at : at + 8], "little")
        at += 8 + length
        if length % 8 or at > len(head):
            return None
    return at


def _after_rows(head: bytes) -> int | None:
    """Offset behind the row numbers and the height; None for more rows than fit the head."""
    rows = int.from_bytes(head[4:12], "little")
    return 12 + 8 * rows + 8 if rows <= _MOST_ROWS else None


def _begins_tensor(head: bytes, at: int | None) -> bool:
    """True when version words of 0 and a whole TensorDesc stand where they are due."""
    if at is None or head[:4] != bytes(4) or head[at : at + 4] != bytes(4):
        return False
    length, start = int.from_bytes(head[at + 4 : at + 8], "little"), at + 8
    desc = head[start : start + length]
    return 2 <= length <= _MOST_DESC and len(desc) == length and _is_desc(desc)


def _is_desc(desc: bytes) -> bool:
    if desc[0] != _TYPE or desc[1] > _LAST_TYPE:
        return False
    at = 2
    while 0 < at < len(desc):
        tag = desc[at]
        value, at = varints.read(desc, at + 1)
        if tag not in (_DIM, _DIMS):
            return False
        at += value if at > 0 and tag == _DIMS else 0
    return at == len(desc)

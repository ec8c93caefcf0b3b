"""Chunks of numbers: their text, as TensorFlow's Merger reads it."""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.descriptor import FieldDescriptor as F

from protoslice.errors import InvalidInput
from protoslice.splitting.planning.shape import Shape
from protoslice.splitting.tags import Path, show

_NOT_NUMBERS: Final = frozenset({F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE, F.TYPE_GROUP})
_NUMBER: Final = re.compile(rb"\s*[+-]?(?:\.?[0-9]|inf|nan)[\x20-\x7e]*", re.IGNORECASE)
_WORD: Final = re.compile(rb"[A-Za-z_0-9-]+")


def check_text(path: Path, chunk: bytes) -> None:
    """Raise `InvalidInput` when `path` leads to a number and `chunk` is no text of one."""
    value = _value(path)
    if value is None or value.type in _NOT_NUMBERS:
        return
    if not (_WORD if value.type in {F.TYPE_BOOL, F.TYPE_ENUM} else _NUMBER).fullmatch(chunk):
        raise InvalidInput(
            "The chunk of a numeric field must be its value as text, such as b'0.5', b'true' or an enum "
            f"value's name; these {len(chunk)} bytes are not. For a NumPy array, pass str(value).encode() for "
            "each value instead of tobytes()",
            path=show(path),
        )


def _value(path: Path) -> Shape | None:
    """The field that a chunk at `path` gives a value of; None for a message itself."""
    if not path:
        return None
    last = path[-1].field
    return last if last.key is None else last.map_value

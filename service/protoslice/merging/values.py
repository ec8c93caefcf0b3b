"""Scalar values that chunks hold as text, and map keys given as another type."""

from __future__ import annotations

import math
import re
import struct
from typing import Any, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from protoslice.splitting.planning.shape import INT_32, WHOLE, Shape

_Field = FieldDescriptor
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", re.ASCII)
_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan))",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_NUMBER = 4096
_WORDS = {"true": True, "false": False}
# Python's `str` of a bool: the guide's example makes chunks of map values that way.
_PYTHON_WORDS = _WORDS | {"True": True, "False": False}


def value_of(field: Shape, chunk: bytes, *, lenient: bool = False) -> Any:
    """Value of a `field` that is no message, from a chunk; `ValueError`, with the reason, for a bad chunk.

    Numbers are text as in C's `strtol` and `strtod`: blanks in front and text behind the number are ignored. A bool is
    `true` or `false`, an enum a name; with `lenient`, also the form of Python's `str`.
    """
    if field.type == _Field.TYPE_BYTES:
        return chunk
    if field.type != _Field.TYPE_STRING and len(chunk) > _LONGEST_NUMBER:
        raise ValueError(f"{len(chunk)} bytes are too long for a number")
    text = _decoded(chunk)
    if field.type == _Field.TYPE_STRING:
        return text
    if field.type == _Field.TYPE_BOOL:
        return _word(text, lenient)
    if field.type == _Field.TYPE_ENUM:
        return _enum(field, text, lenient)
    return _integer(field, text) if field.type in WHOLE else _float(field, text)


def _decoded(chunk: bytes) -> str:
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error


def _word(text: str, lenient: bool) -> bool:
    words = _PYTHON_WORDS if lenient else _WORDS
    if text not in words:
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return words[text]


def _enum(field: Shape, text: str, lenient: bool) -> int:
    kind = cast(EnumDescriptor, field.descriptor.enum_type)
    found = kind.values_by_name.get(text)
    if found is not None:
        return int(found.number)
    if not lenient or not re.fullmatch(r"-?[0-9]{1,10}", text, re.ASCII):
        raise ValueError(f"{text[:40]!r} is not a value of {kind.full_name}")
    number = int(text)
    if number not in INT_32 or (kind.is_closed and number not in kind.values_by_number):
        raise ValueError(f"{number} is not a value of {kind.full_name}")
    return number


def _integer(field: Shape, text: str) -> int:
    if (match := _INTEGER.match(text)) is None:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    value = int(match[1])
    if value not in WHOLE[field.type]:
        raise ValueError(f"{match[1][:40]} is out of range")
    return value


def _float(field: Shape, text: str) -> float:
    if (match := _FLOAT.match(text)) is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    digits = match[1]
    try:
        value = float.fromhex(digits) if "x" in digits.lower() else float(digits)
    except OverflowError:
        value = math.inf
    named = "n" in digits.lower()
    if not named and (math.isinf(value) or (field.type == _Field.TYPE_FLOAT and not _fits_float(value))):
        raise ValueError(f"{digits[:40]} is out of range")
    return value


def _fits_float(value: float) -> bool:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return False
    return True


def key_of(field: Shape, tag: Any) -> Any:
    """Key that the `MapKey` `tag` denotes in a map with key `field`; `ValueError` when there is none.

    A key of another type is converted: numbers to text, text to numbers, true and false to 1 and 0.
    """
    name = tag.WhichOneof("type")
    if name is None:
        raise ValueError("the map key is empty")
    key = getattr(tag, name)
    if field.type == _Field.TYPE_STRING:
        return key if isinstance(key, str) else str(int(key))
    if isinstance(key, str) and not re.fullmatch(r"[+-]?[0-9]{1,20}", key, re.ASCII):
        raise ValueError(f"{key[:40]!r} is not a key of this map, whose keys are numbers")
    value = int(key)
    if field.type == _Field.TYPE_BOOL:
        return value != 0
    if value not in WHOLE[field.type]:
        raise ValueError(f"key {value} is out of range")
    return value

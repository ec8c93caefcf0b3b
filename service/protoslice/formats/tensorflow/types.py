"""TensorFlow's data types by number."""

from __future__ import annotations

from typing import Final

from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.tensors.dtypes import DTYPES, Dtype

TYPES: Final = {
    number: DTYPES[name]
    for number, name in {
        1: "F32", 2: "F64", 3: "I32", 4: "U8", 5: "I16", 6: "I8", 7: "STRING", 8: "C64", 9: "I64", 10: "BOOL",
        11: "I8", 12: "U8", 13: "I32", 14: "BF16", 15: "I16", 16: "U16", 17: "U16", 18: "C128", 19: "F16",
        22: "U32", 23: "U64", 24: "F8_E5M2", 25: "F8_E4M3FN", 26: "F8_E4M3FNUZ", 27: "F8_E4M3B11FNUZ",
        28: "F8_E5M2FNUZ", 29: "I4", 30: "U4", 31: "I2", 32: "U2", 33: "F4_E2M1",
    }.items()
}  # fmt: skip
"""Number → dtype. Quantized types are plain integers; resources and variants, no arrays, are absent."""

_OBJECTS: Final = {20: "resource", 21: "variant"}
_REFERENCE: Final = 100
"""Offset that makes a type's number that of a reference to such a tensor."""


def known(number: int) -> Dtype | None:
    """The dtype with that number; None if there is none."""
    return TYPES.get(_plain(number))


def dtype_of(number: int) -> Dtype:
    """The dtype with that number; `Unsupported` for resources and variants, `CorruptModel` if unknown."""
    dtype = known(number)
    if dtype is not None:
        return dtype
    if _plain(number) in _OBJECTS:
        raise Unsupported(f"A tensor of TensorFlow's type {_OBJECTS[_plain(number)]} holds objects, not numbers")
    raise CorruptModel(f"TensorFlow has no data type {number}")


def _plain(number: int) -> int:
    return number - _REFERENCE if number > _REFERENCE else number

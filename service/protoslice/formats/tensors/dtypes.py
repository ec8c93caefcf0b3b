"""Dtypes of tensors, by their names in the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype: its width, and its names elsewhere."""

    name: str
    bits: int
    """Bits of one element; 0 for strings."""
    numpy: str | None = None
    """Name in `.npy` files and zarr; None where NumPy has no such dtype."""
    safetensors: str | None = None
    """Name in safetensors files; None where the format has no such dtype."""
    signed: bool = False
    """True for signed integers: narrow ones are sign-extended."""

    @property
    def width(self) -> int:
        """Bytes of one element on its own; 1 for dtypes narrower than a byte."""
        return -(-self.bits // 8)

    @property
    def part(self) -> int:
        """Bytes of one number: half an element for complex dtypes, else the width."""
        return self.width // 2 if self.name in ("C64", "C128") else self.width

    @property
    def narrow(self) -> bool:
        """True when several elements fit into a byte."""
        return 0 < self.bits < 8


_ALL: Final = (
    Dtype("F64", 64, "<f8", "F64"),
    Dtype("F32", 32, "<f4", "F32"),
    Dtype("F16", 16, "<f2", "F16"),
    Dtype("BF16", 16, None, "BF16"),
    Dtype("F8_E3M4", 8),
    Dtype("F8_E4M3", 8),
    Dtype("F8_E4M3FN", 8, None, "F8_E4M3"),
    Dtype("F8_E4M3FNUZ", 8, None, "F8_E4M3FNUZ"),
    Dtype("F8_E4M3B11FNUZ", 8),
    Dtype("F8_E5M2", 8, None, "F8_E5M2"),
    Dtype("F8_E5M2FNUZ", 8, None, "F8_E5M2FNUZ"),
    Dtype("F8_E8M0FNU", 8, None, "F8_E8M0"),
    Dtype("F6_E2M3FN", 6, None, "F6_E2M3"),
    Dtype("F6_E3M2FN", 6, None, "F6_E3M2"),
    Dtype("F4_E2M1", 4, None, "F4"),
    Dtype("I64", 64, "<i8", "I64", signed=True),
    Dtype("I32", 32, "<i4", "I32", signed=True),
    Dtype("I16", 16, "<i2", "I16", signed=True),
    Dtype("I8", 8, "|i1", "I8", signed=True),
    Dtype("I4", 4, signed=True),
    Dtype("I2", 2, signed=True),
    Dtype("I1", 1, signed=True),
    Dtype("U64", 64, "<u8", "U64"),
    Dtype("U32", 32, "<u4", "U32"),
    Dtype("U16", 16, "<u2", "U16"),
    Dtype("U8", 8, "|u1", "U8"),
    Dtype("U6", 6),
    Dtype("U4", 4),
    Dtype("U3", 3),
    Dtype("U2", 2),
    Dtype("U1", 1),
    Dtype("BOOL", 8, "|b1", "BOOL"),
    Dtype("C64", 64, "<c8", "C64"),
    Dtype("C128", 128, "<c16"),
    Dtype("STRING", 0),
)

DTYPES: Final = {dtype.name: dtype for dtype in _ALL}
"""All dtypes by name."""

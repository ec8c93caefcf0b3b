"""The dtypes of tensors by their names in the API, and checks of shapes from untrusted models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protoslice.errors import CorruptModel


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype: its width, and its names in other formats."""

    name: str
    bits: int
    """The bits of one element; 0 for strings, and 8 for quantized dtypes."""
    numpy: str | None = None
    """The name in `.npy` files and zarr; None if NumPy has no such dtype."""
    safetensors: str | None = None
    """The name in safetensors files; None if the format has no such dtype."""
    signed: bool = False
    """True for signed integers. They are sign-extended if they are narrower than a byte."""
    block: tuple[int, int] | None = None
    """The number of elements and of bytes in a block of a quantized dtype; None for other dtypes."""

    @property
    def width(self) -> int:
        """The bytes of one element; 1 for dtypes narrower than a byte."""
        return -(-self.bits // 8)

    @property
    def part(self) -> int:
        """The bytes of one number. This is half an element for complex dtypes, and an element for others."""
        return self.width // 2 if self.name in ("C64", "C128") else self.width

    def bytes_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a quantized tensor as an array of bytes.

        Raise `CorruptModel` unless a row consists of whole blocks.
        """
        assert self.block is not None
        elements, size = self.block
        if not shape or shape[-1] % elements:
            raise CorruptModel(
                f"Rows of {self.name} tensors consist of blocks of {elements} elements, not {shape[-1:]}"
            )
        return (*shape[:-1], shape[-1] // elements * size)

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

_BLOCKS: Final = {
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q8_1": (32, 40),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "Q8_K": (256, 292),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "TQ1_0": (256, 54),
    "TQ2_0": (256, 66),
    "MXFP4": (32, 17),
    "NVFP4": (64, 36),
    "Q1_0": (128, 18),
}
"""The number of elements and of bytes in a block, for each of GGML's quantized types."""

DTYPES: Final = {
    **{dtype.name: dtype for dtype in _ALL},
    **{name: Dtype(name, 8, block=block) for name, block in _BLOCKS.items()},
}
"""All dtypes by name."""

_COUNTS_END: Final = 1 << 63


def element_count(shape: Sequence[int]) -> int:
    """Return the number of elements; raise `CorruptModel` for a negative dimension and for 2^63 or more elements."""
    count = 1
    for length in shape:
        if length < 0:
            raise CorruptModel(f"Invalid dimension {length} in the tensor shape {shape_text(shape)}")
        count *= length
    if count >= _COUNTS_END:
        raise CorruptModel(f"A tensor of shape {shape_text(shape)} has too many elements to address")
    return count


def shape_text(shape: Sequence[int]) -> str:
    """Return `shape` as text for an error message, with at most 16 of its dimensions."""
    shown = ", ".join(map(str, shape[:16]))
    return f"({shown}{', …' if len(shape) > 16 else ''})"

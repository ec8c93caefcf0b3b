"""What the header of a GGUF file says about its model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from protoslice.formats.weights.gguf_header import STRING, Cursor, GgufHeader, read_header
from protoslice.schema.strings import text_of
from protoslice.sources.source import RangeSource

FILE_TYPES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
}  # fmt: skip
"""Name of a quantization by its number."""
_LONGEST: Final = 256 << 10
"""Bytes of the longest text that is read."""
_UINT32: Final = 4


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """Facts about a model; texts are empty if the header has none."""

    architecture: str
    file_type: str
    parameters: int
    chat_template: str
    license: str


def facts_of(source: RangeSource, path: str) -> GgufFacts:
    """Return the facts of a GGUF file; it is read as far as its header goes."""
    header = read_header(source, path)

    def text(key: str) -> str:
        return _text(source, path, header, key)

    return GgufFacts(
        text("general.architecture"),
        FILE_TYPES.get(_number(source, path, header, "general.file_type"), "unknown"),
        sum(prod(info.shape) for info in header.tensors),
        text("tokenizer.chat_template"),
        text("general.license"),
    )


def _cursor(source: RangeSource, path: str, header: GgufHeader, at: int) -> Cursor:
    return Cursor(source, path, at, ">" if header.big_endian else "<")


def _text(source: RangeSource, path: str, header: GgufHeader, key: str) -> str:
    value = header.metadata.get(key)
    if value is None or value.type != STRING:
        return ""
    cursor = _cursor(source, path, header, value.offset)
    length = cursor.number("Q")
    return text_of(cursor.take(length)) if length <= _LONGEST else ""


def _number(source: RangeSource, path: str, header: GgufHeader, key: str) -> int:
    value = header.metadata.get(key)
    return _cursor(source, path, header, value.offset).number("I") if value and value.type == _UINT32 else -1

"""Positions in a riegeli file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from protoslice.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class RecordPosition:
    """Position of a record: the offset of its chunk in bytes, and its index in the chunk."""

    chunk_begin: int
    record_index: int = 0

    def __post_init__(self) -> None:
        if self.chunk_begin < 0 or self.record_index < 0 or self.numeric >= 1 << 64:
            raise InvalidInput(f"{self.chunk_begin}/{self.record_index} is not a record position")

    @property
    def numeric(self) -> int:
        """Position as one number; these numbers order the records of a file."""
        return self.chunk_begin + self.record_index

    def to_bytes(self) -> bytes:
        """Serialized position: 16 bytes that sort as positions do."""
        return struct.pack(">QQ", self.chunk_begin, self.record_index)

    @classmethod
    def from_bytes(cls, serialized: bytes) -> Self:
        """Position from the 16 bytes of `to_bytes`; `InvalidInput` for another length."""
        if len(serialized) != 16:
            raise InvalidInput(f"A serialized position has 16 bytes, not {len(serialized)}")
        return cls(*struct.unpack(">QQ", serialized))

    def __str__(self) -> str:
        return f"{self.chunk_begin}/{self.record_index}"


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """Bytes of a file that could not be read, from `begin` up to `end`, and the reason."""

    begin: int
    end: int
    message: str

    @property
    def length(self) -> int:
        """Number of skipped bytes."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"[{self.begin}..{self.end}): {self.message}"

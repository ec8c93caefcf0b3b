"""Places in a riegeli file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from protoslice.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class RecordPosition:
    """Where a record is: the beginning of its chunk, and its index there."""

    chunk_begin: int
    record_index: int = 0

    def __post_init__(self) -> None:
        if self.chunk_begin < 0 or self.record_index < 0 or self.numeric >= 1 << 64:
            raise InvalidInput(f"{self.chunk_begin}/{self.record_index} is no position of a record")

    @property
    def numeric(self) -> int:
        """The position as one number, by which the records of a file are ordered."""
        return self.chunk_begin + self.record_index

    def to_bytes(self) -> bytes:
        """16 bytes that are ordered as the positions are."""
        return struct.pack(">QQ", self.chunk_begin, self.record_index)

    @classmethod
    def from_bytes(cls, serialized: bytes) -> Self:
        """The position that `to_bytes` wrote."""
        if len(serialized) != 16:
            raise InvalidInput(f"a serialized position has 16 bytes, not {len(serialized)}")
        return cls(*struct.unpack(">QQ", serialized))

    def __str__(self) -> str:
        return f"{self.chunk_begin}/{self.record_index}"


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """A stretch of a file that could not be read, and why."""

    begin: int
    end: int
    message: str

    @property
    def length(self) -> int:
        """How many bytes were skipped."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"[{self.begin}..{self.end}): {self.message}"

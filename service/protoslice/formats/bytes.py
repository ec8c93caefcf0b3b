"""Bytes of tensors: ropes with their sources, joined without an object for each extent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from protoslice import _core
from protoslice.sources.source import RangeSource

_AT_ONCE: Final = 1024
"""Extents and literals that are held as Python objects before they are packed into a rope."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """A rope, and the sources that its extents refer to."""

    rope: _core.Rope
    sources: Sequence[RangeSource]

    @classmethod
    def of(cls, source: RangeSource, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes of `source` from `start` up to `stop`, by default up to its end."""
        stop = source.size if stop is None else stop
        return cls(_core.Rope([(0, start, stop - start)] if stop > start else []), [source])

    @classmethod
    def joined(cls, parts: Iterable[Bytes | bytes]) -> Bytes:
        """All `parts` concatenated; each source is listed once."""
        sources = SourceList()
        builder = RopeBuilder(sources)
        for part in parts:
            builder.add(part)
        return cls(_core.Rope(builder.ropes()), sources.listed)

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.rope.size

    @property
    def literals(self) -> int:
        """Bytes of the rope that are held in memory."""
        return sum(len(piece) for piece in self.rope.pieces() if isinstance(piece, bytes))

    def part(self, start: int, stop: int) -> Bytes:
        """The slice from `start` up to `stop`."""
        return Bytes(self.rope.slice(start, stop), self.sources)


class SourceList:
    """Sources of joined ropes, without duplicates."""

    def __init__(self) -> None:
        self.listed: list[RangeSource] = []
        self._numbers: dict[int, int] = {}

    def number(self, source: RangeSource) -> int:
        """Index of `source` in `listed`, where `source` is appended if absent."""
        number = self._numbers.setdefault(id(source), len(self.listed))
        if number == len(self.listed):
            self.listed.append(source)
        return number


class RopeBuilder:
    """A rope in the making: parts are appended; each extent takes about 24 bytes of memory."""

    def __init__(self, sources: SourceList) -> None:
        self._sources = sources
        self.size = 0
        """Bytes that were added."""
        self._ropes: list[_core.Rope] = []
        self._pieces: list[bytes | tuple[int, int, int]] = []

    def add(self, part: Bytes | bytes) -> None:
        """Append the extents and literals of `part`."""
        self.size += len(part) if isinstance(part, bytes) else part.size
        if isinstance(part, bytes):
            self._pieces.append(part)
        else:
            for piece in part.rope.pieces():
                if isinstance(piece, tuple):
                    piece = (self._sources.number(part.sources[piece[0]]), *piece[1:])
                self._pieces.append(piece)
        if len(self._pieces) >= _AT_ONCE:
            self._ropes.append(_core.Rope(self._pieces))
            self._pieces = []

    def ropes(self) -> list[_core.Rope]:
        """The ropes, over the sources of the `SourceList`, that together make up everything added."""
        return [*self._ropes, _core.Rope(self._pieces)]

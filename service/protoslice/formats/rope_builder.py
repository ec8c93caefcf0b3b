"""Concatenation of ropes over several sources without an object for each of their extents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protoslice import _core
from protoslice.sources.source import RangeSource

if TYPE_CHECKING:
    from protoslice.formats.model import Bytes

__all__ = ["RopeBuilder", "SourceList"]

_AT_ONCE: Final = 1024
"""Extents and literals that are held as Python objects before they are packed into a rope."""


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
        self._ropes: list[_core.Rope] = []
        self._pieces: list[bytes | tuple[int, int, int]] = []

    def add(self, part: Bytes | bytes) -> None:
        """Append the extents and literals of `part`."""
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

"""Bytes of several sources, joined part by part, without an object for each piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protoslice import _core
from protoslice.sources import RangeSource

if TYPE_CHECKING:
    from protoslice.formats.model import Bytes

__all__ = ["Joining", "SourceList"]

_AT_ONCE: Final = 1024
"""Pieces that are held as objects."""


class SourceList:
    """The sources of ropes that are joined, each once."""

    def __init__(self) -> None:
        self.listed: list[RangeSource] = []
        self._numbers: dict[int, int] = {}

    def number(self, source: RangeSource) -> int:
        """The number of `source`, which is listed from now on."""
        number = self._numbers.setdefault(id(source), len(self.listed))
        if number == len(self.listed):
            self.listed.append(source)
        return number


class Joining:
    """Bytes in order, added part by part; about 24 bytes are held for each piece."""

    def __init__(self, sources: SourceList) -> None:
        self._sources = sources
        self._ropes: list[_core.Rope] = []
        self._pieces: list[bytes | tuple[int, int, int]] = []

    def add(self, part: Bytes | bytes) -> None:
        """Append `part`."""
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
        """The ropes that make up all that was added, over the sources."""
        return [*self._ropes, _core.Rope(self._pieces)]

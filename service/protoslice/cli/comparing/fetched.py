"""Files of stores that are compared: parts that lie in local files are read there, others are fetched."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol

from protoslice.cli.comparing.shifts import FETCHED_BLOCK, Local, LocalPlace, places_in
from protoslice.comparing.equality import PieceList
from protoslice.errors import CorruptModel
from protoslice.facts import Piece
from protoslice.sources.source import RangeSource

KEPT: Final = 4096
"""Number of fetched blocks that are kept: 64 MiB."""


class Origin(Protocol):
    """The store that files are fetched from."""

    root: str | None

    @property
    def pieces(self) -> Mapping[str, PieceList]:
        """Pieces that cover each file."""

    def source(self, path: str) -> RangeSource:
        """The file as the service has it."""


class LocalPieces:
    """Bytes that need not be fetched: pieces in local files, and what was fetched lately."""

    def __init__(self) -> None:
        self._files: dict[str, Local] = {}
        self._places: dict[str, LocalPlace] = {}
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def add(self, path: str, local: Local) -> None:
        """Register a local file under its path; that of a root is empty."""
        self._files[path] = local
        for piece in local.cuts:
            self._places.setdefault(piece.sha256, (local.file, piece.offset))

    def look_for(self, path: str, pieces: Sequence[Piece], fetch: Callable[[Piece, int], bytes]) -> None:
        """Find out where the pieces of a file lie in the local one that it is compared with."""
        if path in self._files and any(piece.sha256 not in self._places for piece in pieces):
            for piece, place in places_in(self._files[path], pieces, fetch):
                self._places.setdefault(piece.sha256, place)

    def local(self, piece: Piece, start: int, length: int) -> bytes | None:
        """The `length` bytes at `start` of the piece, or None when no local file is known to hold it."""
        place = self._places.get(piece.sha256)
        return None if place is None else place[0].read(place[1] + start, length)

    def block(self, piece: Piece, number: int) -> bytes | None:
        """A block of the piece, if it was fetched lately."""
        found = self._blocks.get((piece.sha256, number))
        if found is not None:
            self._blocks.move_to_end((piece.sha256, number))
        return found

    def keep(self, piece: Piece, number: int, data: bytes) -> None:
        """Remember a fetched block; the least recently used one is dropped."""
        self._blocks[piece.sha256, number] = data
        if len(self._blocks) > KEPT:
            self._blocks.popitem(last=False)


class Fetched:
    """File of a store, read from local pieces where possible; the rest is fetched and verified on demand."""

    def __init__(self, side: Origin, path: str, size: int, near: LocalPieces) -> None:
        self.size = size
        self.name = path.rpartition("/")[2]
        self._side, self._path, self._near = side, path, near

    @property
    def cuts(self) -> PieceList:
        """Pieces of the file."""
        return self._side.pieces[self._path]

    @cached_property
    def _remote(self) -> RangeSource:
        return self._side.source(self._path)

    @cached_property
    def _settled(self) -> PieceList:
        """Pieces of the file, when it is known which of them lie here."""
        path = "" if self._path == self._side.root else self._path
        self._near.look_for(path, [*self.cuts], self._block)
        return self.cuts

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`."""
        parts = []
        for piece in self._settled.within(offset, offset + length):
            start, end = max(offset, piece.offset), min(offset + length, piece.end)
            parts.append(self._within(piece, start - piece.offset, end - piece.offset))
        data = b"".join(parts)
        if len(data) != length:
            raise CorruptModel(f"The service did not list all parts of {self.name}")
        return data

    def _block(self, piece: Piece, number: int) -> bytes:
        return self._within(piece, number * FETCHED_BLOCK, min(piece.size, (number + 1) * FETCHED_BLOCK))

    def _within(self, piece: Piece, start: int, end: int) -> bytes:
        near = self._near.local(piece, start, end - start)
        return self._blocks(piece, start, end) if near is None else near

    def _blocks(self, piece: Piece, start: int, end: int) -> bytes:
        first, last = start // FETCHED_BLOCK, -(-end // FETCHED_BLOCK)
        kept = {number: self._near.block(piece, number) for number in range(first, last)}
        missing = [number for number, data in kept.items() if data is None]
        if missing:
            begin, stop = missing[0] * FETCHED_BLOCK, min(piece.size, (missing[-1] + 1) * FETCHED_BLOCK)
            data = self._remote.read(piece.offset + begin, stop - begin)
            for number in range(missing[0], missing[-1] + 1):
                kept[number] = data[number * FETCHED_BLOCK - begin : (number + 1) * FETCHED_BLOCK - begin]
                self._near.keep(piece, number, kept[number] or b"")
        return b"".join(each or b"" for each in kept.values())[
            start - first * FETCHED_BLOCK : end - first * FETCHED_BLOCK
        ]

"""Tables of the pieces of a store's files, kept among its derived facts."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from protoslice.errors import IntegrityError
from protoslice.facts import Piece
from protoslice.identity import PIECES
from protoslice.stores.catalog.piece_index import sampled
from protoslice.stores.paging import PageBudget, ResultPage, first_item

ROW: Final = struct.Struct("<IQI32s")  # the number of the file, offset, length, sha-256
TABLE: Final = f"pieces-{PIECES}"
"""Name of the table among the derived facts of a store."""
_WEIGHT: Final = 140
"""Bytes of JSON per piece beside the path of its file, about."""


class PieceTable:
    """Pieces of one store, in 48 bytes each."""

    def __init__(self, rows: bytes, files: Sequence[str]) -> None:
        if len(rows) % ROW.size:
            raise IntegrityError("the table of a store's reusable data is damaged")
        self._rows = rows
        self._files = files

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    def sampled(self) -> list[bytes]:
        """Digests of the pieces that have entries in the index of pieces."""
        return sampled((digest, size) for _, _, size, digest in ROW.iter_unpack(self._rows))

    def __iter__(self) -> Iterator[tuple[str, int, int, bytes]]:
        for number, offset, size, digest in ROW.iter_unpack(self._rows):
            yield self._files[number], offset, size, digest

    def page(self, limit: int, cursor: str | None) -> ResultPage[Piece]:
        """A page of the pieces, in order."""
        first = first_item(cursor)
        rows = ROW.iter_unpack(self._rows[first * ROW.size : (first + limit) * ROW.size])
        items, room = list[Piece](), PageBudget(limit)
        for number, offset, size, digest in rows:
            if not room.takes(_WEIGHT + len(self._files[number])):
                break
            items.append(Piece(self._files[number], offset, size, digest.hex()))
        last = first + len(items)
        return ResultPage(items, str(last) if items and last < len(self) else None)

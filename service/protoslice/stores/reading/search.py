"""Search for pieces in stores that the client did not name, by digests of files and by a sample of pieces."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final

from protoslice.catalog.stores import StoreTable
from protoslice.concurrency.gather import both, map_concurrently
from protoslice.errors import NotFound, ProtosliceError
from protoslice.facts import PiecePlace
from protoslice.stores.finding import LEAST_FOUND, FilesByDigest
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.pieces import ASKED, Pieces

_log = logging.getLogger(__name__)

MOST_FILES: Final = 64
"""Digests of one request that are looked up as those of whole files: the ones of most bytes."""
MOST_STORES: Final = 16
"""Stores whose tables are read for one request."""


class PieceSearch:
    """Finds pieces in the stores of one space; reveals no more than lists of stores and pieces do."""

    def __init__(
        self, pieces: Pieces, files: FilesByDigest, table: StoreTable, view: Callable[[str], Awaitable[OpenStore]]
    ) -> None:
        """`view` opens a store by its id."""
        self._pieces = pieces
        self._files = files
        self._table = table
        self._view = view

    async def places(self, wanted: Mapping[str, int]) -> Sequence[PiecePlace]:
        """Return places of the pieces in `wanted` (digest to size): one for each that is found.

        Pieces are found in the stores whose table has been computed.
        """
        found, sharing = await both(lambda: self._whole_files(wanted), lambda: self._sharing(wanted))
        left = dict(wanted)
        for place in found:
            del left[place.sha256]
        for _ in range(MOST_STORES):
            # The most in common with what is left; of equal ones the newest.
            best = max(sharing, key=lambda row: (len(sharing[row][1] & left.keys()), row), default=None)
            if best is None:
                break
            store, pieces = sharing.pop(best)
            if pieces.isdisjoint(left):
                break
            places = await self._in(store, left)
            found += places
            for place in places:
                del left[place.sha256]
        return found

    async def _sharing(self, wanted: Mapping[str, int]) -> dict[int, tuple[str, set[str]]]:
        """Return stores that may have pieces of `wanted`, each with digests that it was found by, by their rows."""
        digests = [bytes.fromhex(digest) for digest in nsmallest(ASKED, wanted)]
        found: dict[int, tuple[str, set[str]]] = {}
        for row, store, piece in await self._table.with_pieces(digests):
            found.setdefault(row, (store, set()))[1].add(piece.hex())
        return found

    async def _whole_files(self, wanted: Mapping[str, int]) -> list[PiecePlace]:
        large = ((size, sha256) for sha256, size in wanted.items() if size >= LEAST_FOUND)
        found = await map_concurrently(lambda each: self._files.place(each[1], each[0]), nlargest(MOST_FILES, large))
        return [place for place in found if place is not None]

    async def _in(self, store_id: str, wanted: Mapping[str, int]) -> Sequence[PiecePlace]:
        """Return places in a store; none in one that is damaged or gone."""
        try:
            return await self._pieces.locate(wanted, [await self._view(store_id)])
        except NotFound:
            pass
        except ProtosliceError:
            _log.exception("skipping store %s in the search for data to reuse", store_id)
        return ()

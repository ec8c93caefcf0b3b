"""Search for pieces in stores that nobody named, by two indexes: of whole files, and of pieces."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest
from typing import Final

from protoslice.concurrency.gather import both, map_concurrently
from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.facts import PiecePlace
from protoslice.stores.catalog.files import LEAST_FOUND, FilesByDigest
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.piece_index import PieceIndex, store_of
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.pieces import Pieces

_log = logging.getLogger(__name__)

MOST_FILES: Final = 64
"""Digests of one request that are looked up as those of whole files: the ones of most bytes."""
MOST_STORES: Final = 16
"""Stores whose tables are read for one request."""


class PieceSearch:
    """Finds pieces in the stores of one storage; reveals no more than lists of stores and pieces do."""

    def __init__(
        self,
        pieces: Pieces,
        files: FilesByDigest,
        index: PieceIndex,
        manifests: Manifests,
        view: Callable[[str], Awaitable[OpenStore]],
    ) -> None:
        """`view` opens a store by its id."""
        self._pieces = pieces
        self._files = files
        self._index = index
        self._manifests = manifests
        self._view = view

    async def places(self, wanted: Mapping[str, int]) -> Sequence[PiecePlace]:
        """Places of the pieces in `wanted` (digest to size): one for each that is found.

        Of the stores that the index of pieces names, those are searched whose piece table has been computed.
        """
        found, sharing = await both(lambda: self._whole_files(wanted), lambda: self._index.places(wanted))
        left = dict(wanted)
        for place in found:
            del left[place.sha256]
        for _ in range(MOST_STORES):
            # The most in common with what is left; of equal ones the newest, which is the first.
            best = min(sharing, key=lambda place: (-len(sharing[place] & left.keys()), place), default=None)
            if best is None or sharing.pop(best).isdisjoint(left):
                break
            places = await self._in(store_of(best), left)
            found += places
            for place in places:
                del left[place.sha256]
        return found

    async def _whole_files(self, wanted: Mapping[str, int]) -> list[PiecePlace]:
        large = ((size, sha256) for sha256, size in wanted.items() if size >= LEAST_FOUND)
        found = await map_concurrently(lambda each: self._file(*each), nlargest(MOST_FILES, large))
        return [place for place in found if place is not None]

    async def _file(self, size: int, sha256: str) -> PiecePlace | None:
        """The place of a file in any store that it came with and that is there; None when there is none."""
        for store_id in await self._files.stores_of(sha256):
            try:
                files = (await self._manifests.get(store_id)).files
            except (NotFound, IntegrityError):
                continue
            for file in files:
                if (file.sha256, file.size) == (sha256, size):
                    return PiecePlace(sha256, size, store_id, file.path, 0)
        return None

    async def _in(self, store_id: str, wanted: Mapping[str, int]) -> Sequence[PiecePlace]:
        """Places in a store; none without a table, and when the store is damaged or gone."""
        try:
            if not await self._pieces.known(store_id):
                return ()
            return await self._pieces.locate(wanted, [await self._view(store_id)])
        except NotFound:
            pass
        except ProtosliceError:
            _log.exception("skipping store %s in the search for data to reuse", store_id)
        return ()

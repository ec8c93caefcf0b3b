"""Sharing: which bytes of a new store stay in objects of other stores, and which bytes are written again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from protoslice.catalog.manifest import ObjectExtent, ObjectLocation

LEAST_SHARED: Final = 256 << 10
"""The size in bytes of the smallest shared part of a file. A reader may have to read up to half of it in addition."""
MOST_EXTENTS: Final = 4096
"""Largest number of shared parts in the files of one store."""
HEAVY: Final = 4 << 20
"""The number of shared bytes from which a reference to an object is always worthwhile."""
MOST_LIGHT: Final = 32
"""Largest number of objects of which a store shares fewer than `HEAVY` bytes."""


class Sharing:
    """The limit on the number of shared parts in the files of one ingest."""

    def __init__(self) -> None:
        self._extents = 0

    def takes(self, extent: ObjectExtent, worth: frozenset[str], *, goes_on: bool) -> bool:
        """Return True if an extent should be shared, and False if it should be written again.

        Only objects in `worth` are shared. An extent that continues the file's last extent (`goes_on`) is shared at any
        size, because it adds no extent.
        """
        if extent.object.key not in worth:
            return False
        if not goes_on and (extent.size < LEAST_SHARED or self._extents >= MOST_EXTENTS):
            return False
        self._extents += not goes_on
        return True


def worth_sharing(locations: Iterable[ObjectLocation]) -> frozenset[str]:
    """Return the keys of the objects that are worth sharing.

    These are all objects, but without the smallest ones if too many objects are small.
    """
    weights: Counter[str] = Counter()
    for extent in (extent for location in locations for extent in location.extents()):
        if extent.object.key is not None:
            weights[extent.object.key] += extent.size
    light = sorted((each for each, size in weights.items() if size < HEAVY), key=lambda each: (-weights[each], each))
    # Half of the small objects are dropped at once. So later versions have room, and few bytes are copied repeatedly.
    dropped = light[MOST_LIGHT // 2 :] if len(light) > MOST_LIGHT else []
    return frozenset(weights.keys() - set(dropped))


class Layout:
    """The layout of an arriving file: own bytes, and extents of other stores' objects."""

    def __init__(self) -> None:
        self.is_shared = False
        """True when the file has an extent of another store."""
        self._extents: list[tuple[ObjectLocation | None, int, int]] = []
        self._own = 0

    def write(self, size: int) -> None:
        """Append own bytes."""
        self._append(None, self._own, self._own + size)
        self._own += size

    def ends_before(self, extent: ObjectExtent) -> bool:
        """Return True when the file's last bytes are directly before `extent` in the same object."""
        return bool(self._extents) and (self._extents[-1][0], self._extents[-1][2]) == (extent.object, extent.start)

    def share(self, extent: ObjectExtent) -> None:
        """Append an extent of another store's object."""
        self.is_shared = True
        self._append(extent.object, extent.start, extent.end)

    def location(self, own: ObjectLocation | None) -> ObjectLocation:
        """Return the location of the file; `own` is the object with the file's own bytes, or None."""
        extents = ((one or own, start, end) for one, start, end in self._extents)
        return ObjectLocation.joined([ObjectExtent(one, start, end).location for one, start, end in extents if one])

    def _append(self, one: ObjectLocation | None, start: int, end: int) -> None:
        if self._extents and (self._extents[-1][0], self._extents[-1][2]) == (one, start):
            start = self._extents.pop()[1]
        self._extents.append((one, start, end))

"""Census of a storage, by listings: stores in 25 bytes each, tags that entries bear in 8, tags in 9."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from protoslice.storage import ObjectStat, Storage
from protoslice.stores.catalog.named_records import is_removal_mark
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import IndexEntry, is_mark
from protoslice.stores.layout.references import Reference
from protoslice.stores.names import is_id

_PREFIX: Final = 16
"""Hex digits of an id that are kept; stores whose ids share them are always looked at."""
_UNKNOWN: Final = -1
_SEVERAL: Final = -2


class Census:
    """Stores that exist, each with its place in time and the number of its unseen references.

    Errors are on one side: a store whose records are not all in order is looked at, and none is taken for gone.
    """

    def __init__(self) -> None:
        self._ids = array("Q")
        self._times = array("q")
        self._unseen = array("q")
        self.is_astray = False
        """True when the index by time has an entry that is not the only one of a store that exists."""
        self._looked_at = bytearray()
        self.marks: list[ObjectStat] = []
        """Marks in the place of withdrawn manifests."""
        self.borne = array("Q")
        """Fingerprints of the tags that entries by time bear, each as often as it is borne."""

    @classmethod
    async def of(cls, storage: Storage) -> Census:
        """The census of `storage`."""
        census, before, marked = cls(), "", ""
        async for item in storage.iterate(keys.STORES):
            census.add(item)
        async for item in storage.iterate(keys.BY_TIME):
            entry = IndexEntry.parse(item.key)
            census.borne.extend(map(_fingerprint, entry.tags or ()))
            if marked not in {"", entry.place}:
                census.is_astray = True  # the mark of an entry that is not there
            if is_mark(item.key):
                marked = entry.place
                continue
            if entry.place != before:  # a place of two layouts counts once
                census.place(entry.place, is_looked_at=entry.place == marked or entry.tags is None)
            marked, before = "", entry.place
        census.is_astray |= bool(marked)
        return census

    def __len__(self) -> int:
        """Number of stores."""
        return len(self._ids)

    def add(self, manifest: ObjectStat) -> None:
        """Add a listed manifest; in key order."""
        store_id = manifest.key.segments[-1]
        if is_removal_mark(manifest):
            self.marks.append(manifest)
        elif is_id(store_id):
            self._ids.append(_number(store_id))
            self._times.append(_UNKNOWN)
            self._unseen.append(_UNKNOWN)
            self._looked_at.append(False)

    def is_looked_at(self, store_id: str) -> bool:
        """True when a list looks for tags of a store that its entries do not bear."""
        at = self._find(store_id)
        return at is not None and bool(self._looked_at[at])

    def place(self, place: str, *, is_looked_at: bool = False) -> None:
        """Take an entry of the index by time into account, at which a list looks in full or not."""
        time, _, store_id = place.partition("-")
        at = self._find(store_id)
        if at is None or self._times[at] != _UNKNOWN:
            self.is_astray = True
        if at is not None:
            self._looked_at[at] = is_looked_at and self._times[at] == _UNKNOWN
            self._times[at] = _time(time) if self._times[at] == _UNKNOWN else _SEVERAL

    def has(self, store_id: str) -> bool:
        """True when there is a store of this id, or of one that begins alike."""
        return self._find(store_id) is not None

    def is_current(self, place: str | None) -> bool:
        """True when a store exists and `place` is the only one that the index by time has for it."""
        if place is None:
            return False
        time, _, store_id = place.partition("-")
        at = self._find(store_id)
        return at is not None and self._times[at] == _time(time) >= 0

    def see(self, reference: Reference) -> None:
        """Count a current reference of a store."""
        at = self._find(reference.store)
        assert at is not None
        self._unseen[at] = (reference.attempts if self._unseen[at] == _UNKNOWN else self._unseen[at]) - 1

    def incomplete(self) -> Iterator[str]:
        """Prefixes of the ids of stores that lack a reference in an attempt, or have too many."""
        for number, unseen in zip(self._ids, self._unseen, strict=True):
            if unseen:
                yield f"{number:0{_PREFIX}x}"

    def _find(self, store_id: str) -> int | None:
        if not is_id(store_id):
            return None
        number = _number(store_id)
        at = bisect_left(self._ids, number)
        return at if at < len(self._ids) and self._ids[at] == number else None


class TagCensus:
    """Tags that exist, by 64 bits of their names, each with the number of its entries that were seen."""

    def __init__(self) -> None:
        self._names = array("Q")
        self._seen = bytearray()
        self.marks: list[ObjectStat] = []
        """Marks in the place of removed tags."""

    @classmethod
    async def of(cls, storage: Storage, borne: Iterable[int] = ()) -> TagCensus:
        """The census of the tags in `storage`; those `borne` by entries of stores have one of their own."""
        census, names = cls(), array("Q")
        async for item in storage.iterate(keys.TAGS):
            if is_removal_mark(item):
                census.marks.append(item)
            else:
                names.append(_fingerprint(item.key.segments[-1]))
        census._names = array("Q", sorted(names))
        census._seen = bytearray(len(names))
        for fingerprint in borne:
            census._see(fingerprint)
        return census

    def __len__(self) -> int:
        """Number of tags."""
        return len(self._names)

    def see(self, quoted: str) -> int:
        """Number of entries of a tag so far, with this one, two at most; 0 when there is no such tag."""
        return self._see(_fingerprint(quoted))

    @property
    def has_unseen(self) -> bool:
        """True when a tag has no entry so far."""
        return 0 in self._seen

    def is_unseen(self, quoted: str) -> bool:
        """True for a tag without an entry so far."""
        at = self._find(_fingerprint(quoted))
        return at is not None and not self._seen[at]

    def _see(self, number: int) -> int:
        at = self._find(number)
        if at is None:
            return 0
        self._seen[at] = min(2, self._seen[at] + 1)
        return self._seen[at]

    def _find(self, number: int) -> int | None:
        at = bisect_left(self._names, number)
        return at if at < len(self._names) and self._names[at] == number else None


def _fingerprint(quoted: str) -> int:
    return int.from_bytes(blake2b(quoted.encode(), digest_size=8).digest())


def _number(store_id: str) -> int:
    return int(store_id[:_PREFIX], 16)


def _time(digits: str) -> int:
    """Time of a place; `_SEVERAL`, which no place has, for what is not 14 hex digits."""
    try:
        return int(digits, 16) if len(digits) == 14 else _SEVERAL
    except ValueError:
        return _SEVERAL

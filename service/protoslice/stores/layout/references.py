"""References: notes in an attempt about stores that may name its objects; the keys hold the facts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from protoslice.storage import ObjectKey, ObjectStat
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import place_in_time
from protoslice.stores.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Reference:
    """Note of one manifest in one attempt, parsed from its key."""

    store: str
    place: str | None = None
    """Place in time of the manifest, different for each manifest of the store; None in older notes."""
    attempts: int = 0
    """Number of attempts that the manifest names."""
    names: str = ""
    """Digest of the names of the attempt's objects that the manifest names."""

    @classmethod
    def parse(cls, key: ObjectKey) -> Reference:
        """Reference at a key for which `keys.is_reference` holds."""
        told = key.segments[-1].removeprefix("of-").split("-")
        if len(told) != 4 or not told[2].isdecimal():
            return cls(told[0])
        return cls(told[1], f"{told[0]}-{told[1]}", int(told[2]), told[3])


def references_of(manifest: Manifest) -> tuple[ObjectKey, ...]:
    """Keys of the notes of a manifest in each attempt that it names."""
    named: dict[str, list[str]] = {attempt: [] for attempt in sorted(manifest.attempts)}
    for key in manifest.keys:
        _, attempt, name = key.split("/")
        named[attempt].append(name)
    about = f"{place_in_time(manifest)}-{len(named)}"
    return tuple(keys.reference(attempt, f"{about}-{_digest(names)}") for attempt, names in named.items())


def names_digest(objects: Iterable[ObjectStat]) -> str:
    """Digest of the names of listed objects of one attempt, leaving out its claim and references."""
    return _digest(item.key.segments[-1] for item in objects if not keys.is_note(item.key))


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]

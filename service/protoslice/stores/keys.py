"""Keys of the storage.

protoslice.json                   the catalogue that the storage belongs to
objects/<xx>/<id>-<random>        bytes of an upload, or a record made of them; see `catalog.objects`
objects/<xx>/<id>-<random>.sums   the checksums of its blocks, of an object of more than 16 MiB
"""

from __future__ import annotations

from typing import Final

from protoslice.storage import ObjectKey

MARKER: Final = ObjectKey("protoslice.json")
OBJECTS: Final = ObjectKey("objects")


def sums_of(key: ObjectKey) -> ObjectKey:
    """Return the key of the block checksums of an object."""
    return ObjectKey(f"{key}.sums")

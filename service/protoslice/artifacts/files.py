"""Paths that the blobs of a manifest have as the files of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from protoslice.artifacts.manifests import Descriptor
from protoslice.artifacts.names import Digest
from protoslice.errors import InvalidInput
from protoslice.stores.names import FilePaths

_BLOBS: Final = "blobs"
"""Folder of blobs without a title."""


def blob_path(digest: Digest) -> str:
    """The path of a blob without a name of its own."""
    return f"{_BLOBS}/{digest.algorithm}/{digest.hex}"


def paths_of(descriptors: Iterable[Descriptor]) -> dict[Digest, Sequence[str]]:
    """Paths of each blob: the titles of its descriptors, or one made of its digest.

    A title that is no path, or that another blob has, counts for nothing.
    """
    found: dict[Digest, list[str]] = {}
    titled = {(each.title or "", each.digest): None for each in descriptors}
    taken = FilePaths()
    for title, digest in sorted(titled, key=lambda pair: pair[0]):
        paths = found.setdefault(digest, [])
        if title and title.partition("/")[0] != _BLOBS:
            with suppress(InvalidInput):
                taken.add(title)
                paths.append(title)
    return {digest: paths or [blob_path(digest)] for digest, paths in found.items()}

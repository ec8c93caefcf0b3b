"""Paths that the blobs of a manifest have as the files of a store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from protoslice.artifacts.manifests import Descriptor
from protoslice.artifacts.names import Digest
from protoslice.errors import InvalidInput
from protoslice.stores.names import FilePaths


def blob_path(digest: Digest) -> str:
    """The path of a blob without a name of its own."""
    return f"blobs/{digest.algorithm}/{digest.hex}"


def paths_of(descriptors: Iterable[Descriptor]) -> dict[Digest, str]:
    """Path of each blob: the title in its descriptor, unless that is no path or another blob's."""
    titles: dict[Digest, str] = {}
    for descriptor in descriptors:
        if titles.get(descriptor.digest) is None:
            titles[descriptor.digest] = descriptor.title or ""
    taken, found = FilePaths(), dict[Digest, str]()
    for digest, title in sorted(titles.items(), key=lambda item: not item[1]):
        found[digest] = blob_path(digest)
        if title and not title.startswith("blobs/"):
            with suppress(InvalidInput):
                taken.add(title)
                found[digest] = title
                continue
        taken.add(found[digest])
    return found

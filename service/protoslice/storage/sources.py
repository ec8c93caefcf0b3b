"""External objects: resolves a client's URI to a storage that the operator allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protoslice.errors import ProtosliceError, StorageDenied
from protoslice.storage.interface import Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.local.backend import FileStorage
from protoslice.storage.locations import Location, parse_location, parse_root
from protoslice.storage.registry import BACKENDS, open_storage


@dataclass(frozen=True, slots=True)
class Source:
    """Allowed external object: `root` is the operator's prefix as configured, `key` the rest of the URI."""

    root: str
    key: ObjectKey


def check_prefixes(prefixes: Sequence[str]) -> None:
    """Raise for a prefix that could allow nothing.

    `InvalidInput` for a malformed one or an unknown scheme, `Unsupported` when the scheme's backend does not load.
    """
    for prefix in prefixes:
        shown = "a registration prefix" if "@" in prefix else f"the registration prefix {prefix!r}"
        try:
            BACKENDS.get(parse_root(prefix).scheme)
        except ProtosliceError as error:
            error.message = f"{shown} allows nothing: {error.message}"
            raise


def allowed(uri: str, prefixes: Sequence[str]) -> Source:
    """Resolve `uri` under the longest of the prefixes that contains it; `StorageDenied` when none does.

    A prefix is a scheme, an authority and perhaps some whole segments of a path: `s3://bucket`, `file:///srv/models/`,
    `https://models.example.org/public`. An empty list allows nothing. For web sources, `open_source` adds the check of
    the host's addresses.
    """
    place = parse_location(uri)
    roots = {parse_root(prefix): prefix for prefix in prefixes}
    for length in range(len(place.segments) - 1, -1, -1):
        root = roots.get(Location(place.scheme, place.authority, place.segments[:length]))
        if root is not None:
            return Source(root, ObjectKey("/".join(place.segments[length:])))
    raise StorageDenied("this source is not under any of the prefixes the operator allows")


def open_source(
    root: str, options: Mapping[str, str] | None = None, *, networks: Sequence[str] = (), prefixes: Sequence[str] = ()
) -> Storage:
    """Open the storage at an allowed prefix for reading; a missing directory is not created.

    `networks` lists non-public networks that web sources may lie in; redirects reach those below `prefixes` alone.
    """
    place = parse_root(root)
    if place.scheme == "file":
        return FileStorage("/" + "/".join(place.segments), create=False)
    if place.is_web:
        from protoslice.storage.web.backend import WebStorage

        return WebStorage(root, networks=networks, prefixes=prefixes)
    return open_storage(root, options)

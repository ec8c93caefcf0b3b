"""Prefixes of external objects: the operator's, below which a client may name URIs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.errors import StorageDenied
from protoslice.storage.keys import ObjectKey
from protoslice.uris import Location, parse_location, parse_root

__all__ = ["ExternalObject", "allowed"]


@dataclass(frozen=True, slots=True)
class ExternalObject:
    """Allowed external object: `root` is the operator's prefix as configured, `key` the rest of the URI."""

    root: str
    key: ObjectKey


def allowed(uri: str, prefixes: Sequence[str]) -> ExternalObject:
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
            return ExternalObject(root, ObjectKey("/".join(place.segments[length:])))
    raise StorageDenied("this source is not under any of the prefixes the operator allows")

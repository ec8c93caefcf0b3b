"""External objects: the prefixes that the operator allows, and the storages that read the objects there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protoslice.errors import InvalidInput, ProtosliceError, StorageDenied
from protoslice.storage.interface import Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.local import FileStorage
from protoslice.storage.registry import backend_module, backend_of, open_storage
from protoslice.uris import Location, parse_location, parse_root


@dataclass(frozen=True, slots=True)
class ExternalObject:
    """An allowed external object: `root` is the operator's prefix as configured, and `key` is the rest of the URI."""

    root: str
    key: ObjectKey
    uri: str
    """The normalized URI, the same for all spellings."""


def check_apart(storage: str, prefixes: Sequence[str]) -> None:
    """Raise `InvalidInput` when a prefix covers objects of `storage`: clients could read other spaces through it."""
    if not storage.partition("://")[2]:
        return  # a memory storage, which no URI can name
    own = parse_root(storage)
    for prefix in prefixes:
        place = parse_root(prefix)
        shared = min(len(own.segments), len(place.segments))
        same = (own.scheme, own.authority) == (place.scheme, place.authority)
        if same and own.segments[:shared] == place.segments[:shared]:
            raise InvalidInput(
                f"The registration prefix {prefix!r} covers the service's own storage, so registering could "
                "expose every space: list folders outside of the storage in PROTOSLICE_REGISTER_ALLOW"
            )


def allowed(uri: str, prefixes: Sequence[str]) -> ExternalObject:
    """Match `uri` with the longest prefix that contains it; raise `StorageDenied` if no prefix does.

    A prefix is a scheme, an authority and optionally whole path segments, such as `s3://bucket`, `file:///srv/models/`
    or `https://models.example.org/public`. An empty list allows nothing. For web sources, `open_source` also checks the
    host's addresses.
    """
    place = parse_location(uri)
    root, length = _longest(place, prefixes, len(place.segments) - 1)
    return ExternalObject(root, ObjectKey("/".join(place.segments[length:])), place.uri)


def check_allowed(url: str, prefixes: Sequence[str]) -> None:
    """Raise `StorageDenied` unless `url` equals a prefix or is below one; see `allowed`."""
    place = parse_root(url)
    _longest(place, prefixes, len(place.segments))


def _longest(place: Location, prefixes: Sequence[str], most: int) -> tuple[str, int]:
    """Return the longest prefix that contains `place` and has at most `most` segments, and how many it has."""
    roots = {parse_root(prefix): prefix for prefix in prefixes}
    for length in range(most, -1, -1):
        root = roots.get(Location(place.scheme, place.authority, place.segments[:length]))
        if root is not None:
            return root, length
    raise StorageDenied("The operator does not allow this source: it is not under any allowed prefix")


def check_prefixes(prefixes: Sequence[str]) -> None:
    """Raise an error for a prefix that cannot work.

    Raise `InvalidInput` for a malformed prefix or an unknown scheme. Raise `Unsupported` when the scheme's backend
    cannot be loaded.
    """
    for prefix in prefixes:
        shown = "a registration prefix" if "@" in prefix else f"the registration prefix {prefix!r}"
        try:
            backend_of(parse_root(prefix).scheme)
        except ProtosliceError as error:
            error.message = f"{shown} cannot be used: {error.message}"
            raise


def open_source(
    root: str, options: Mapping[str, str] | None = None, *, networks: Sequence[str] = (), prefixes: Sequence[str] = ()
) -> Storage:
    """Open the storage at an allowed prefix for reading; do not create a missing directory.

    `networks` are the non-public networks in which web sources may be. A redirect may lead into these networks only if
    its target is below one of `prefixes`.
    """
    place = parse_root(root)
    if place.scheme == "file":
        return FileStorage(place.path, create=False)
    if place.is_web:
        web: Storage = backend_module("https").WebStorage(root, networks=networks, prefixes=prefixes)
        return web
    return open_storage(root, options)

"""External objects: storages at the prefixes that the operator allows, opened for reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protoslice.errors import ProtosliceError
from protoslice.storage.interface import Storage
from protoslice.storage.local.backend import FileStorage
from protoslice.storage.registry import backend_module, backend_of, open_storage
from protoslice.uris import parse_root


def check_prefixes(prefixes: Sequence[str]) -> None:
    """Raise for a prefix that could allow nothing.

    `InvalidInput` for a malformed one or an unknown scheme, `Unsupported` when the scheme's backend does not load.
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
    """Open the storage at an allowed prefix for reading; a missing directory is not created.

    `networks` lists non-public networks that web sources may lie in; redirects reach those below `prefixes` alone.
    """
    place = parse_root(root)
    if place.scheme == "file":
        return FileStorage(place.path, create=False)
    if place.is_web:
        web: Storage = backend_module("https").WebStorage(root, networks=networks, prefixes=prefixes)
        return web
    return open_storage(root, options)

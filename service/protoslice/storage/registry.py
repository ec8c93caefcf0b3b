"""Storage backends by URI scheme: a table of ours, and the entry-point group `protoslice.storage`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from protoslice.errors import InvalidInput, Unsupported
from protoslice.storage.interface import INTERFACE, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.locations import parse_root

GROUP: Final = "protoslice.storage"

Factory = Callable[[str, Mapping[str, str]], Storage]
"""Opens the storage at a URI; the backend defines the meaning of the options."""


def open_storage(uri: str, options: Mapping[str, str] | None = None) -> Storage:
    """Open the storage at `uri` with the backend of its scheme; touches no network.

    `InvalidInput` for an unknown scheme, a bad URI or bad options; `Unsupported` for a backend whose extra is missing
    or whose interface version this release does not speak.
    """
    scheme = uri.partition("://")[0].lower()
    if scheme not in schemes():
        raise InvalidInput(f"no storage backend for scheme {scheme!r}; there are: {', '.join(schemes())}")
    storage = _factory(scheme)(uri, options or {})
    if not 1 <= storage.interface <= INTERFACE:
        raise Unsupported(f"the backend for {scheme!r} speaks storage interface {storage.interface}, not {INTERFACE}")
    return storage


def schemes() -> list[str]:
    """URI schemes with a backend, even if the extra that the backend needs is missing."""
    return sorted({*_BUILT_IN, *_registered, *(point.name for point in entry_points(group=GROUP))})


def register(scheme: str, factory: Factory) -> None:
    """Make `factory` the backend of `scheme` in this process; `InvalidInput` for a scheme that is taken."""
    if not _SCHEME.fullmatch(scheme):
        raise InvalidInput(f"{scheme!r} is no scheme: two or more of a-z, 0-9, '+', '.' and '-', a letter first")
    if scheme in schemes():
        raise InvalidInput(f"the scheme {scheme!r} has a backend already")
    _registered[scheme] = factory


def unregister(scheme: str) -> None:
    """Take back `register`; a scheme that is not registered is left alone."""
    _registered.pop(scheme, None)


def _factory(scheme: str) -> Factory:
    if scheme in _BUILT_IN:
        return _BUILT_IN[scheme]
    if scheme in _registered:
        return _registered[scheme]
    (point, *others) = entry_points(group=GROUP, name=scheme)
    if others:
        raise InvalidInput(f"several installed packages bring a storage backend for scheme {scheme!r}")
    factory: Factory = point.load()
    return factory


def _open_files(uri: str, options: Mapping[str, str]) -> Storage:
    from protoslice.storage.local.backend import FileStorage

    _refuse_options("file", options)
    return FileStorage("/" + "/".join(parse_root(uri).segments))


def _open_memory(uri: str, options: Mapping[str, str]) -> Storage:
    from protoslice.storage.memory import MemoryStorage, shared_memory
    from protoslice.storage.prefix import PrefixStorage

    _refuse_options("memory", options)
    if uri.rstrip("/") == "memory:":
        return MemoryStorage()
    place = parse_root(uri)
    shared = shared_memory(place.authority)
    return PrefixStorage(shared, ObjectKey("/".join(place.segments))) if place.segments else shared


def _open_cloud(uri: str, options: Mapping[str, str]) -> Storage:
    try:
        from protoslice.storage.cloud.backend import CloudStorage
    except ImportError:
        raise Unsupported("buckets need the extra: pip install 'protoslice[cloud]'") from None
    return CloudStorage.from_uri(uri, options)


def _open_web(uri: str, options: Mapping[str, str]) -> Storage:
    try:
        from protoslice.storage.web.backend import WebStorage
    except ImportError:
        raise Unsupported("web sources need the extra: pip install 'protoslice[cloud]'") from None
    _refuse_options("https", options)
    return WebStorage(uri)


def _refuse_options(scheme: str, options: Mapping[str, str]) -> None:
    if options:
        raise InvalidInput(f"{scheme} storage has no options")


_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+")
_registered: dict[str, Factory] = {}

_BUILT_IN: Final[dict[str, Factory]] = {
    "file": _open_files,
    "memory": _open_memory,
    "s3": _open_cloud,
    "gs": _open_cloud,
    "az": _open_cloud,
    "http": _open_web,
    "https": _open_web,
}

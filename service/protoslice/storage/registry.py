"""The storage backends by URI scheme, either built in or plug-ins (group `protoslice.storage`), and a storage test."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from secrets import token_hex
from typing import Any, Final

from protoslice.errors import (
    InvalidInput,
    NotFound,
    ProtosliceError,
    StorageError,
    StorageUnavailable,
    Unsupported,
    missing_extra,
)
from protoslice.plugins import PluginGroup, brief, check_version
from protoslice.storage.interface import INTERFACE, Abilities, Storage
from protoslice.storage.keys import ObjectKey

Factory = Callable[[str, Mapping[str, str]], Storage]
"""A function that opens the storage at a URI without sending a request; the backend defines which options exist."""
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+")
READ_ONLY: Final = "This storage is read-only: it can serve stores, but not accept uploads"
FOLDER: Final = ObjectKey("probe")


@dataclass(frozen=True, slots=True)
class Scheme:
    """A URI scheme and its backend, as `protoslice storage schemes` shows them."""

    scheme: str
    package: str
    """The backend's package with its version; for a backend that `register` added, the backend's module."""
    abilities: Abilities | None
    """The abilities of a storage of this scheme; None when the factory does not declare them."""
    problem: str | None
    """The reason why the backend cannot be used, or None."""


def open_storage(uri: str, options: Mapping[str, str] | None = None) -> Storage:
    """Open the storage at `uri` with the backend of its scheme, without using the network.

    Raise `InvalidInput` for an unknown scheme, a bad URI or bad options. Raise `Unsupported` for a backend whose
    optional dependencies are missing, that lacks a method, or that was written for an unsupported version of the
    interface.
    """
    scheme = uri.partition("://")[0].lower()
    factory = backend_of(scheme)
    if BACKENDS.is_ours(_family(scheme)):
        return factory(uri, options or {})
    owner = f"the storage backend for {scheme!r} of {BACKENDS.package(scheme)}"
    try:
        storage = factory(uri, options or {})
    except ProtosliceError:
        raise
    except Exception as error:
        raise Unsupported(f"Cannot open {owner}: {brief(error, hidden=(options or {}).values())}") from error
    if not isinstance(storage, Storage):
        raise Unsupported(f"{owner} returned a {type(storage).__name__} instead of a protoslice.storage.Storage")
    check_version(owner, storage.interface, INTERFACE)
    return storage


def backend_of(scheme: str) -> Factory:
    """Return the function that opens storages of a scheme; the errors are those of `open_storage`."""
    return BACKENDS.get(_family(scheme))


def schemes() -> list[str]:
    """Return all URI schemes that have a backend, even if the backend's optional dependencies are missing."""
    return BACKENDS.names()


def register(scheme: str, factory: Factory) -> None:
    """Make `factory` the backend of `scheme` in this process.

    Raise `InvalidInput` for a scheme that is invalid or already has a backend. Raise `Unsupported` for an unsuitable
    factory.
    """
    if not _SCHEME.fullmatch(scheme):
        raise InvalidInput(
            f"Invalid scheme {scheme!r}: use at least two of a-z, 0-9, '+', '.' and '-', starting with a letter"
        )
    BACKENDS.register(scheme, factory)


def unregister(scheme: str) -> None:
    """Undo `register`; do nothing if the scheme is not registered."""
    BACKENDS.unregister(scheme)


def described() -> list[Scheme]:
    """Return every scheme with its package and abilities; this imports all backends but opens no storage."""
    return [_described(scheme) for scheme in schemes()]


def backend_module(scheme: str) -> Any:
    """Return the module of a built-in backend; raise `Unsupported` if its optional dependencies are missing."""
    name, extra, what = _BUILT_IN[scheme]
    try:
        return import_module(f"protoslice.storage.{name}")
    except ImportError:
        raise Unsupported(missing_extra(f"To use {what}", extra)) from None


def _open(scheme: str, uri: str, options: Mapping[str, str]) -> Storage:
    storage: Storage = backend_module(scheme).open(uri, options)
    return storage


def _described(scheme: str) -> Scheme:
    try:
        factory = BACKENDS.get(scheme)
        told = backend_module(scheme).ABILITIES if BACKENDS.is_ours(scheme) else getattr(factory, "ABILITIES", None)
    except ProtosliceError as error:
        return Scheme(scheme, BACKENDS.package(scheme), None, error.message)
    return Scheme(scheme, BACKENDS.package(scheme), told if isinstance(told, Abilities) else None, None)


def _lacks(factory: object) -> str | None:
    """Return why an object cannot be used as a factory; return None if it can."""
    if not callable(factory):
        return "is not a factory: a callable (uri, options) -> Storage is needed"
    left: Iterable[str] = getattr(factory, "__abstractmethods__", ())
    if left:
        return f"lacks {', '.join(sorted(left))}"
    try:
        inspect.signature(factory).bind("", {})
    except TypeError:
        return "is not a factory: it does not accept (uri, options)"
    except ValueError:  # the callable has no signature, like some functions in C
        return None
    return None


def _family(scheme: str) -> str:
    """Return the name under which a scheme's backend is registered; all fsspec file systems share one backend."""
    return _FSSPEC if scheme.startswith("fsspec+") else scheme


_FSSPEC: Final = "fsspec+NAME"
_BUILT_IN: Final = {
    _FSSPEC: ("fsspec_files", "client", "file systems of fsspec"),
    "file": ("local", "", "files"),
    "memory": ("memory", "", "objects in memory"),
    **dict.fromkeys(("s3", "gs", "az"), ("bucket", "cloud", "buckets")),
    **dict.fromkeys(("http", "https"), ("web", "cloud", "web sources")),
}
"""The built-in backends. Each has a module with `ABILITIES` and `open(uri, options)`, an extra, and a description."""

BACKENDS: Final[PluginGroup[Factory]] = PluginGroup(
    "protoslice.storage", "storage backend", {scheme: partial(_open, scheme) for scheme in _BUILT_IN}, _lacks
)
"""The storage factories by scheme."""


async def probe(storage: Storage) -> None:
    """Raise `Unsupported`, with the reason, if `storage` cannot be written; leave no test object behind."""
    if not storage.abilities.write:
        raise Unsupported(READ_ONLY)
    key = FOLDER / token_hex(16)
    try:
        await _probe(storage, key)
    except Exception:
        with suppress(StorageError):  # the caller gets the first error
            await storage.delete(key)
        raise
    with suppress(StorageUnavailable, NotFound):
        await storage.delete(key)
        await storage.get_range(key, 0, 3)
        raise Unsupported("Objects that were deleted are still in this storage: do not use it")


async def _probe(storage: Storage, key: ObjectKey) -> None:
    await storage.put(key, b"old")
    await storage.put(key, b"new")
    with suppress(NotFound):
        if await storage.get_range(key, 0, 3) == b"new":
            return
    raise Unsupported("This storage returns other bytes than were written last: do not use it")

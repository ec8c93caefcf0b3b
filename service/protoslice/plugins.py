"""Plug-ins of other packages by name, checked when they are loaded.

Plug-ins come from entry points of installed packages, from calls of `register`, and from the modules that
PROTOSLICE_PLUGINS names, which call `register` when they are imported.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar

from protoslice.errors import InvalidInput, Unsupported

T = TypeVar("T")
Version = tuple[int, int]
"""Major and minor version of an interface; a change that plug-ins may notice is a new major version."""

PLUGINS: Final = "PROTOSLICE_PLUGINS"
OURS: Final = "protoslice"


class PluginWarning(UserWarning):
    """Warning of a plug-in that is skipped, or used in spite of a problem."""


class PluginGroup(Generic[T]):
    """Plug-ins of one kind by name: built-in and registered ones, and those of installed packages."""

    def __init__(
        self, group: str, kind: str, built_in: Mapping[str, T], lacks: Callable[[T], str | None] = lambda _: None
    ) -> None:
        """Take the entry-point `group`, the `kind` for messages, and `lacks`, which returns a plug-in's problem."""
        self.group = group
        self._kind = kind
        self._built_in = dict(built_in)
        self._registered: dict[str, T] = {}
        self._loaded: dict[str, T] = {}
        self._lacks = lacks

    def names(self) -> list[str]:
        """Return the names of all plug-ins, sorted; loads the modules of PROTOSLICE_PLUGINS, but no entry point."""
        _import_listed(os.environ.get(PLUGINS, ""))
        return sorted({*self._built_in, *self._registered, *self._points})

    def get(self, name: str) -> T:
        """Return the plug-in `name`, loaded and checked.

        Raise `InvalidInput` for an unknown name, or a name that several packages claim; raise `Unsupported` for a
        plug-in that does not import or lacks something.
        """
        if name not in self.names():
            names = ", ".join(self.names()) or "none is installed"
            raise InvalidInput(f"No {self._kind} for {name!r}; available: {names}")
        for known in (self._built_in, self._registered, self._loaded):
            if name in known:
                return known[name]
        plugin = self._loaded[name] = self._load(name)
        return plugin

    def register(self, name: str, plugin: T) -> None:
        """Add a plug-in to this process.

        Raise `InvalidInput` for a name that is taken, `Unsupported` for a plug-in that lacks something. A registered
        plug-in replaces a plug-in of an installed package.
        """
        if name in self._built_in or name in self._registered:
            raise InvalidInput(f"The {self._kind} for {name!r} is already registered by {self.package(name)}")
        self._check(name, _module_of(plugin), plugin)
        self._registered[name] = plugin

    def unregister(self, name: str) -> None:
        """Revert `register`; ignore an unknown name."""
        self._registered.pop(name, None)

    def package(self, name: str) -> str:
        """Return the package of the plug-in with its version, or the module of a registered plug-in."""
        if name in self._built_in:
            return OURS
        if name in self._registered:
            return _module_of(self._registered[name])
        return " and ".join(map(_package_of, self._points.get(name, [])))

    def is_ours(self, name: str) -> bool:
        """Return True for a built-in plug-in."""
        return name in self._built_in

    def forget(self) -> None:
        """Search for entry points again, as when packages were installed meanwhile."""
        self._loaded.clear()
        self.__dict__.pop("_points", None)

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        """Entry points by name, without those with the name of a built-in one."""
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            if point.name in self._built_in:
                warn(f"the {self._kind} for {point.name!r} is built in: the one of {_package_of(point)} is ignored")
            else:
                found.setdefault(point.name, []).append(point)
        return found

    def _load(self, name: str) -> T:
        (point, *others) = self._points[name]
        if others:
            raise InvalidInput(f"Several installed packages provide a {self._kind} for {name!r}: {self.package(name)}")
        try:
            plugin: T = point.load()
        except Exception as error:
            raise Unsupported(
                f"Cannot import the {self._kind} for {name!r} of {_package_of(point)}: {brief(error)}"
            ) from error
        self._check(name, _package_of(point), plugin)
        return plugin

    def _check(self, name: str, owner: str, plugin: T) -> None:
        fault = self._lacks(plugin)
        if fault is not None:
            raise Unsupported(f"the {self._kind} for {name!r} of {owner} {fault}")


def check_version(owner: str, given: object, ours: Version) -> None:
    """Compare the interface version of a plug-in with `ours`.

    Warn with a `PluginWarning` about another minor version; raise `Unsupported` for another major version, or an
    invalid one.
    """
    version = (given, 0) if isinstance(given, int) else given
    match version:
        case (int(major), int(minor)):
            if major != ours[0]:
                raise Unsupported(f"{owner} uses interface version {major}.{minor}, not {ours[0]}.{ours[1]}")
            if minor != ours[1]:
                age = "an older" if minor < ours[1] else "a newer"
                warn(f"{owner} was written for {age} interface: {major}.{minor} instead of {ours[0]}.{ours[1]}")
        case _:
            raise Unsupported(f"{owner} has no valid interface version: set `interface`, such as {ours}")


def brief(error: BaseException, hidden: Iterable[str] = ()) -> str:
    """Return class and first line of a foreign error; only the class when the line repeats a `hidden` text."""
    told = str(error).partition("\n")[0]
    secret = any(text and text in told for text in hidden)
    return f"{type(error).__name__}: {told}" if told and not secret else type(error).__name__


def warn(message: str) -> None:
    """Issue a `PluginWarning`."""
    warnings.warn(message, PluginWarning, stacklevel=2)


def _module_of(plugin: Any) -> str:
    """Return the module that defines a class or a function, or the class of an instance."""
    return f"module {getattr(plugin, '__module__', None) or type(plugin).__module__}"


@cache
def _import_listed(names: str) -> None:
    for name in filter(None, map(str.strip, names.split(","))):
        try:
            import_module(name)
        except Exception as error:
            raise Unsupported(f"Cannot import the module {name!r} listed in {PLUGINS}: {brief(error)}") from error


def _package_of(point: EntryPoint) -> str:
    if point.dist is None:
        return f"package {point.module.partition('.')[0]}"
    return f"package {point.dist.name} {point.dist.version}"

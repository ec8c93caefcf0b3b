"""The plug-ins of other packages, by name. Each plug-in is checked when it is loaded.

Plug-ins come from entry points of installed packages and from calls of `register`. The modules that PROTOSLICE_PLUGINS
lists are imported, so that they can call `register`.
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
"""The major and minor version of an interface. A change that may break plug-ins increases the major version."""

PLUGINS: Final = "PROTOSLICE_PLUGINS"
OURS: Final = "protoslice"


class PluginWarning(UserWarning):
    """The warning about a plug-in that is skipped, or that is used although it has a problem."""


class PluginGroup(Generic[T]):
    """The plug-ins of one kind by name: built-in plug-ins, registered plug-ins, and plug-ins of installed packages."""

    def __init__(
        self, group: str, kind: str, built_in: Mapping[str, T], lacks: Callable[[T], str | None] = lambda _: None
    ) -> None:
        """Create the group of plug-ins.

        `group` is the name of the entry-point group, and `kind` describes the plug-ins in error messages. `lacks`
        returns a description of a plug-in's problem, or None if the plug-in is valid.
        """
        self.group = group
        self._kind = kind
        self._built_in = dict(built_in)
        self._registered: dict[str, T] = {}
        self._loaded: dict[str, T] = {}
        self._lacks = lacks

    def names(self) -> list[str]:
        """Return the sorted names of all plug-ins.

        This imports the modules in PROTOSLICE_PLUGINS, but loads no entry point.
        """
        _import_listed(os.environ.get(PLUGINS, ""))
        return sorted({*self._built_in, *self._registered, *self._points})

    def get(self, name: str) -> T:
        """Return the plug-in `name`, after loading and checking it on the first call.

        Raise `InvalidInput` if no plug-in, or plug-ins of several packages, have this name. Raise `Unsupported` if the
        plug-in cannot be imported or is invalid.
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
        """Add a plug-in for this process. It replaces an installed package's plug-in that has the same name.

        Raise `InvalidInput` if the name belongs to a built-in or registered plug-in. Raise `Unsupported` if the plug-in
        is invalid.
        """
        if name in self._built_in or name in self._registered:
            raise InvalidInput(f"The {self._kind} for {name!r} is already registered by {self.package(name)}")
        self._check(name, _module_of(plugin), plugin)
        self._registered[name] = plugin

    def unregister(self, name: str) -> None:
        """Remove a registered plug-in. An unknown name is ignored."""
        self._registered.pop(name, None)

    def package(self, name: str) -> str:
        """Return the name and version of the plug-in's package; for a registered plug-in, return its module."""
        if name in self._built_in:
            return OURS
        if name in self._registered:
            return _module_of(self._registered[name])
        return " and ".join(map(_package_of, self._points.get(name, [])))

    def is_ours(self, name: str) -> bool:
        """Return True if the plug-in `name` is built in."""
        return name in self._built_in

    def forget(self) -> None:
        """Forget the loaded entry points, so that packages installed meanwhile are found."""
        self._loaded.clear()
        self.__dict__.pop("_points", None)

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        """The entry points by name, without entry points that have the name of a built-in plug-in."""
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
            raise InvalidInput(
                f"Several installed packages provide a {self._kind} for {name!r}: uninstall all but one of "
                f"{self.package(name)}"
            )
        try:
            plugin: T = point.load()
        except Exception as error:
            raise Unsupported(
                f"Cannot import the {self._kind} for {name!r} from the package {_package_of(point)}: {brief(error)}"
            ) from error
        self._check(name, _package_of(point), plugin)
        return plugin

    def _check(self, name: str, owner: str, plugin: T) -> None:
        fault = self._lacks(plugin)
        if fault is not None:
            raise Unsupported(f"the {self._kind} for {name!r} of {owner} {fault}")


def check_version(owner: str, given: object, ours: Version) -> None:
    """Compare the interface version of a plug-in with `ours`.

    Issue a `PluginWarning` if the minor version differs. Raise `Unsupported` if the major version differs, or if the
    version of the plug-in is invalid.
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
    """Return the class and the first line of an error of another package.

    If the line contains one of the `hidden` texts, return only the class.
    """
    told = str(error).partition("\n")[0]
    secret = any(text and text in told for text in hidden)
    return f"{type(error).__name__}: {told}" if told and not secret else type(error).__name__


def warn(message: str) -> None:
    """Issue a `PluginWarning`."""
    warnings.warn(message, PluginWarning, stacklevel=2)


def _module_of(plugin: Any) -> str:
    """Return the module of a class or function; for another object, return the module of its class."""
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

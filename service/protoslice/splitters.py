"""Splitters of other packages: sources of rules, by the entry-point group `protoslice.splitters`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from protoslice.errors import InvalidInput, Unsupported
from protoslice.library.proto import RuleSplitter

GROUP: Final = "protoslice.splitters"


def splitters() -> list[str]:
    """Names of the installed splitters."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def splitter_named(name: str) -> RuleSplitter:
    """The installed splitter `name`.

    `InvalidInput` when no package or several bring it; `Unsupported`, with the package, when its class does not load or
    lacks `rules`.
    """
    points = entry_points(group=GROUP, name=name)
    if not points:
        known = ", ".join(splitters()) or "none is installed"
        raise InvalidInput(f"No splitter {name!r}; available: {known}")
    (point, *others) = points
    if others:
        raise InvalidInput(f"Several installed packages provide a splitter {name!r}: uninstall all but one")
    return _loaded(point)


def _loaded(point: EntryPoint) -> RuleSplitter:
    package = point.dist.name if point.dist is not None else point.value
    try:
        splitter = point.load()()
    except Exception as error:  # of another package, which may raise anything
        raise Unsupported(f"Cannot load the splitter {point.name!r} of {package}: {error}") from error
    if not callable(getattr(splitter, "rules", None)):
        raise Unsupported(f"The splitter {point.name!r} of {package} has no method `rules`")
    loaded: RuleSplitter = splitter
    return loaded

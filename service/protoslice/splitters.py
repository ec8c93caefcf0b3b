"""Splitters of other packages: sources of rules, by the entry-point group `protoslice.splitters`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protoslice.library.proto import RuleSplitter
from protoslice.plugins import PluginGroup, brief


def splitters() -> list[str]:
    """Return the names of the installed splitters."""
    return SPLITTERS.names()


def splitter_named(name: str) -> RuleSplitter:
    """Return the installed splitter `name`.

    Raise `InvalidInput` when no package or several have it, `Unsupported`, with the package, when its class does not
    load or lacks `rules`.
    """
    return SPLITTERS.get(name)()


def _lacks(factory: Callable[[], RuleSplitter]) -> str | None:
    """Return what is wrong with a class of splitters; None if nothing is."""
    try:
        splitter = factory()
    except Exception as error:  # of another package, which may raise anything
        return f"does not load: {brief(error)}"
    return None if callable(getattr(splitter, "rules", None)) else "has no method `rules`"


SPLITTERS: Final[PluginGroup[Callable[[], RuleSplitter]]] = PluginGroup("protoslice.splitters", "splitter", {}, _lacks)
"""Classes of splitters by name."""

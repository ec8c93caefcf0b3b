"""The splitters of other packages, which provide split rules.

Packages register them in the entry-point group `protoslice.splitters`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protoslice.library.proto import RuleSplitter
from protoslice.plugins import PluginGroup, brief


def splitters() -> list[str]:
    """Return the names of the installed splitters."""
    return SPLITTERS.names()


def splitter_named(name: str) -> RuleSplitter:
    """Return an instance of the installed splitter `name`.

    Raise `InvalidInput` if no package, or several packages, provide this splitter. Raise `Unsupported` if its class
    cannot be loaded or lacks the method `rules`; the message names the package.
    """
    return SPLITTERS.get(name)()


def _lacks(factory: Callable[[], RuleSplitter]) -> str | None:
    """Return a description of the problem of a splitter class, or None if the class is valid."""
    try:
        splitter = factory()
    except Exception as error:  # the code of another package may raise any exception
        return f"does not load: {brief(error)}"
    return None if callable(getattr(splitter, "rules", None)) else "has no method `rules`"


SPLITTERS: Final[PluginGroup[Callable[[], RuleSplitter]]] = PluginGroup("protoslice.splitters", "splitter", {}, _lacks)
"""The splitter classes by name."""

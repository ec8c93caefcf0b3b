"""Journal of a history: a line for each call of the storage, and for each answer to a client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from tests.stores.simulation.faults import Fate

from protoslice.storage import ObjectKey

_RANDOM = re.compile(r"[0-9a-f]{10}-[0-9a-f]{20}|[0-9a-f]{64}|(?<=-)[0-9a-f]{16}|(?<=/)[0-9a-f]{32}")

Point = tuple[str, str, str]
"""A place where a history can be interrupted: the method, the kind of key, and what the client wants."""


class Journal:
    """Counts what was interrupted; keeps lines where they are wanted."""

    def __init__(self, *, lines: bool = False) -> None:
        self.lines: list[str] = []
        self.calls = 0
        self.struck: Counter[str] = Counter()
        """Number of troubles, by kind."""
        self.interrupted: set[Point] = set()
        self._wanted = lines
        self._names: dict[str, str] = {}

    def call(
        self, time: float, who: str, name: str, key: ObjectKey | None, *, fate: Fate | None, outcome: Callable[[], str]
    ) -> None:
        """Note a call of the storage. How machines are started is of interest only if something befalls them."""
        self.calls += 1
        if self._wanted and (fate is not None or not who.endswith(" starts")):
            self._line(time, who, f"{name:<13} {key or ''} {outcome()}")

    def trouble(self, kind: str, name: str, key: ObjectKey | None, fate: Fate) -> None:
        """Count a call that something befell."""
        self.struck[fate.kind] += 1
        self.interrupted.add((name, kind_of(key), kind))

    def told(self, time: float, client: str, text: Callable[[], str]) -> None:
        """Note what a client asked for or was told."""
        if self._wanted:
            self._line(time, client, f"    {text()}")

    def _line(self, time: float, who: str, text: str) -> None:
        text = _RANDOM.sub(lambda found: self._names.setdefault(found[0], self._named(found[0])), text)
        self.lines.append(f"{time:9.3f}  {who:<26} {text}")

    def _named(self, found: str) -> str:
        """A name that a reader can tell from others."""
        letter = {31: "@", 64: "#"}.get(len(found), "")
        return f"{letter}{len(self._names) + 1}"


def kind_of(key: ObjectKey | None) -> str:
    """Kind of objects with such keys, without their names."""
    if key is None:
        return "all"
    first, *rest = key.segments
    return first if len(rest) < 2 else f"{first}/{re.sub(r'-[0-9a-f]+', '', rest[-1])}"

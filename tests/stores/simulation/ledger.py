"""Records of the clients' requests and answers, and the states that must follow from them.

A deed (a client's request for a change) has an interval of ticks in which it takes effect. It is open while the end is
unknown. A refused deed is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Final, Literal

from tests.stores.simulation.replica import Violation

Place = tuple[str, str]
"""A space, and the id of a store or the name of a tag there."""
_ANY: Final = ""


@dataclass(slots=True, eq=False)
class Deed:
    """A change that a client requested."""

    place: Place
    store: str | None
    """The store that exists after the deed; None if the deed removes it."""
    begin: float
    end: float = inf
    acknowledged: bool = False
    of: str = _ANY
    """The store that a tag must point at; otherwise the deed has no effect."""


@dataclass(slots=True)
class Ledger:
    """The deeds of all clients."""

    stores: list[Deed] = field(default_factory=list)
    tags: list[Deed] = field(default_factory=list)
    _ticks: count[int] = field(default_factory=lambda: count(1))
    _versions: set[str] = field(default_factory=set)
    _moved: set[tuple[str, str]] = field(default_factory=set)

    def tick(self) -> int:
        """Return a moment after all others."""
        return next(self._ticks)

    def add(self, space: str, store: str) -> Deed:
        """Record that a store is being sent or restored."""
        return self._begin(self.stores, Deed((space, store), store, self.tick()))

    def remove(self, space: str, store: str) -> Deed:
        """Record that a store is being removed."""
        return self._begin(self.stores, Deed((space, store), None, self.tick()))

    def tag(self, space: str, name: str, store: str | None, of: str = _ANY) -> Deed:
        """Record that a tag is being set, or removed for None."""
        return self._begin(self.tags, Deed((space, name), store, self.tick(), of=of))

    @staticmethod
    def _begin(deeds: list[Deed], deed: Deed) -> Deed:
        deeds.append(deed)
        return deed

    def end(self, deeds: Iterable[Deed], outcome: Literal["done", "unsure", "lost", "refused"]) -> None:
        """Record how deeds ended: `unsure` ones took effect before the answer or never, `lost` ones may do so later."""
        for deed in deeds:
            if outcome == "refused":
                (self.stores if deed in self.stores else self.tags).remove(deed)
            elif outcome != "lost":
                deed.end, deed.acknowledged = self.tick(), outcome == "done"

    def must_exist(self, space: str, store: str, at: float = inf) -> bool:
        """Return True if a store certainly exists from the moment `at` on."""
        deeds = [deed for deed in self.stores if deed.place == (space, store)]
        gone = max((deed.end for deed in deeds if deed.store is None), default=0)
        return any(deed.acknowledged and deed.store and deed.end < at and gone < deed.begin for deed in deeds)

    def must_be_gone(self, space: str, store: str, at: float = inf) -> bool:
        """Return True if a store is certainly gone from the moment `at` on."""
        deeds = [deed for deed in self.stores if deed.place == (space, store)]
        added = max((deed.end for deed in deeds if deed.store is not None), default=0)
        if added == 0:
            return True
        return any(deed.acknowledged and deed.store is None and deed.end < at and added < deed.begin for deed in deeds)

    def stores_of(self, space: str, name: str) -> set[str | None]:
        """Return the stores at which a tag may point now; None represents no tag."""
        deeds = [deed for deed in self.tags if deed.place == (space, name)]
        last = max((deed.begin for deed in deeds if deed.acknowledged and not deed.of), default=0)
        found = {deed.store for deed in deeds if deed.end >= last}
        return found if last else found | {None}

    def see(self, name: str, version: str, condition: str | None) -> None:
        """Record the entity tag of a name's successful change; a condition holds for one change only."""
        if version in self._versions:
            raise Violation(f"the entity tag of {name} was given before")
        self._versions.add(version)
        if condition is not None:
            if (name, condition) in self._moved:
                raise Violation(f"{name} was moved twice on the same condition")
            self._moved.add((name, condition))

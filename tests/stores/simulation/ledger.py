"""What clients were told, and what must be so because of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from tests.stores.simulation.contents import Content
from tests.stores.simulation.registers import FOR_EVER, Deed

__all__ = ["Entry", "Ledger", "Violation"]


class Violation(Exception):
    """Something that must always hold did not."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclass(slots=True)
class Entry:
    """A store sent or removed between two moments; `sure` when a client was told that it had been done."""

    store: str
    began: int
    ended: int = FOR_EVER
    sure: bool = False
    created: bool = False
    """Whether that client was told that it made the store, which was not there before."""


class Ledger:
    """All that clients did, in the order of its moments."""

    def __init__(self, contents: Mapping[str, Content]) -> None:
        self.contents = contents
        """What the stores hold, by id."""
        self.sent: list[Entry] = []
        self.removed: list[Entry] = []
        self.tags: dict[str, list[Deed]] = {}
        self._moments = count(1)

    def moment(self) -> int:
        """Now: later than all moments before."""
        return next(self._moments)

    def sending(self, store: str) -> Entry:
        """A client begins to send a store."""
        self.sent.append(Entry(store, self.moment()))
        return self.sent[-1]

    def removing(self, store: str) -> Entry:
        """A client begins to remove a store; the tags that point at it may go too."""
        self.removed.append(Entry(store, self.moment()))
        return self.removed[-1]

    def deed(self, name: str, deed: Deed) -> Deed:
        """A client begins to do something to a tag."""
        self.tags.setdefault(name, []).append(deed)
        return deed

    def end(self, entry: Entry | Deed, *, sure: bool) -> None:
        """What was begun has ended; nothing of it happens any more."""
        entry.ended = self.moment()
        if isinstance(entry, Entry):
            entry.sure = sure

    def must_be(self, store: str, began: int, ended: int) -> bool:
        """Whether a look between two moments must find a store: it was sent before, and not removed since."""
        return any(
            entry.sure and entry.store == store and entry.ended <= began and not self._removed(entry, ended)
            for entry in self.sent
        )

    def _removed(self, sent: Entry, before: int) -> bool:
        return any(
            entry.store == sent.store and entry.began < before and entry.ended > sent.began for entry in self.removed
        )

    def may_be(self, store: str, began: int) -> bool:
        """Whether a look that begins then may find a store: not if it was removed, and never sent since."""
        return any(
            entry.store == store
            and not any(
                gone.sure and gone.store == store and gone.began > entry.ended and gone.ended < began
                for gone in self.removed
            )
            for entry in self.sent
        )

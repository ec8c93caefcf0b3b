"""Ledger of the answers that clients got, and of all that must hold because of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from tests.stores.simulation.contents import Content
from tests.stores.simulation.registers import FOR_EVER, Deed


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
    made: int = -1
    """When its bytes came: when it was begun, unless it is an old store that is restored."""
    created: bool = False
    """True if that client was told that it created the store."""


class Ledger:
    """All that clients did, in the order of its moments."""

    def __init__(self, contents: Mapping[str, Content]) -> None:
        self.contents = contents
        """Contents of stores, by id."""
        self.sent: list[Entry] = []
        self.removed: list[Entry] = []
        self.damaged: list[Entry] = []
        """Stores of which a stranger destroyed something."""
        self.late = False
        """True if failed calls may take effect later."""
        self.tags: dict[str, list[Deed]] = {}
        self.commits: list[str] = []
        """Places of commits that clients were told of."""
        self.artifacts: dict[str, list[Entry]] = {}
        """Manifests that were pushed, by repository; digests stand for stores."""
        self.artifacts_deleted: dict[str, list[Entry]] = {}
        """Manifests whose deletion began, by repository; none of them ends."""
        self.artifact_tags: dict[tuple[str, str], list[Deed]] = {}
        self.left: dict[str, bool] = {}
        """Folders of which replicas make stores by themselves; True where all writes were acknowledged."""
        self._moments = count(1)

    def moment(self) -> int:
        """Now: later than all moments before."""
        return next(self._moments)

    def sending(self, store: str, *, again: bool = False) -> Entry:
        """A client begins to send a store, or to take its removal back: then it comes `again` as it was."""
        began = self.moment()
        self.sent.append(Entry(store, began, made=0 if again else began))
        return self.sent[-1]

    def damaging(self, store: str) -> None:
        """A stranger has destroyed something of a store."""
        moment = self.moment()
        self.damaged.append(Entry(store, moment, moment))

    def removing(self, store: str) -> Entry:
        """A client begins to remove a store; the tags that point at it may go too."""
        self.removed.append(Entry(store, self.moment()))
        return self.removed[-1]

    def dangling(self, name: str, store: str) -> None:
        """A tag may point at a store that is gone: from now on a collector may remove it whenever that is so."""
        deeds = self.tags.get(name, [])
        if not any(deed.repeats and deed.of == store for deed in deeds):
            self.deed(name, Deed("drop", self.moment(), of=store, repeats=True))

    def deed(self, name: str, deed: Deed) -> Deed:
        """A client begins to do something to a tag."""
        self.tags.setdefault(name, []).append(deed)
        return deed

    def end(self, entry: Entry | Deed, *, sure: bool) -> None:
        """End a deed, unless a late call may still carry it out."""
        if self.late and not (sure and (isinstance(entry, Entry) or entry.told != "unsure")):
            return
        entry.ended = self.moment()
        if isinstance(entry, Entry):
            entry.sure = sure

    def must_be(self, store: str, began: int, ended: int) -> bool:
        """True if a look between two moments must find a store: sent before, and not removed since."""
        return any(
            entry.sure
            and entry.store == store
            and entry.ended <= began
            and not self._removed(entry, ended)
            and not self._damaged(entry)
            for entry in self.sent
        )

    def may_be_damaged(self, store: str) -> bool:
        """True if a stranger destroyed something of a store that nobody sent again since."""
        return any(entry.store == store for entry in self.damaged) and not any(
            entry.sure and entry.store == store and not self._damaged(entry) for entry in self.sent
        )

    def _damaged(self, sent: Entry) -> bool:
        return any(entry.store == sent.store and entry.began > sent.made for entry in self.damaged)

    def _removed(self, sent: Entry, before: int) -> bool:
        return any(
            entry.store == sent.store and entry.began < before and entry.ended > sent.began for entry in self.removed
        )

    def may_be(self, store: str, began: int) -> bool:
        """True if a look that begins then may find a store: not after a removal without another sending."""
        return any(
            entry.store == store
            and not any(
                gone.sure and gone.store == store and gone.began > entry.ended and gone.ended < began
                for gone in self.removed
            )
            for entry in self.sent
        )

"""Linearizability of one tag, after Wing and Gong: some order of the deeds explains all answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

FOR_EVER = 1 << 62


@dataclass(slots=True)
class Deed:
    """Something done to a tag, between two moments.

    `etag` is the one that was answered. With `of`, only a tag that points there is removed, and the condition `new` is
    met by such a tag too. What is `unsure` may have happened or not; what has not `ended` may still happen.
    """

    what: Literal["set", "drop", "look"]
    began: int
    store: str = ""
    condition: str | None = None
    """An entity tag, or `new`: where there is none."""
    of: str | None = None
    ended: int = FOR_EVER
    told: Literal["done", "refused", "missing", "unsure"] = "unsure"
    etag: str | None = None
    repeats: bool = False
    """True for a deed that may happen any number of times."""

    def __str__(self) -> str:
        condition = "" if self.condition is None else f" if {self.condition}"
        return f"{self.what} {self.store[:6]}{condition}: {self.told} {self.etag or ''} [{self.began}, {self.ended}]"


State = tuple[str, str] | None
"""Store that the tag points at, and its entity tag, `?…` for one that no client knows; None if unset."""


def linearizable(deeds: Sequence[Deed]) -> bool:
    """True if some order of the deeds, each at one moment of its own, explains all answers."""
    known = frozenset(deed.etag for deed in deeds if deed.what == "set" and deed.etag)
    hopeless: set[tuple[frozenset[int], State]] = set()

    def search(left: frozenset[int], state: State) -> bool:
        sure = [deeds[n].ended for n in left if deeds[n].told != "unsure"]
        if not sure:
            return True
        if (left, state) in hopeless:
            return False
        for n in sorted(left):
            if deeds[n].began < min(sure):
                passed = {m for m in left if deeds[m].ended < deeds[n].began}  # only what may never have happened
                used = set() if deeds[n].repeats else {n}
                if any(search(left - passed - used, after) for after in _after(deeds[n], n, state, known)):
                    return True
        hopeless.add((left, state))
        return False

    return search(frozenset(range(len(deeds))), None)


def _after(deed: Deed, number: int, state: State, known: frozenset[str | None]) -> Iterator[State]:
    """The states that a deed may lead to, if it can have been told what it was."""
    if deed.told == "missing":
        if state is None:
            yield None
    elif deed.told == "refused":
        if (state is not None) if deed.condition == "new" else (state is None or state[1] != deed.condition):
            yield state
    elif deed.what == "look":
        if state is not None and state[0] == deed.store and _may_be(state[1], deed.etag, known):
            yield deed.store, deed.etag or state[1]
    elif _meets(deed, state, known):
        yield (deed.store, deed.etag or f"?{number}") if deed.what == "set" else None


def _meets(deed: Deed, state: State, known: frozenset[str | None]) -> bool:
    """True if the conditions of a deed hold."""
    if deed.condition == "new":
        return state is None or state[0] == deed.of
    if state is None:
        return deed.what == "set" and deed.condition is None
    if deed.of is not None and state[0] != deed.of:
        return False
    return deed.condition is None or _may_be(state[1], deed.condition, known)


def _may_be(etag: str, told: str | None, known: frozenset[str | None]) -> bool:
    """True if a state's entity tag may be the one in the answer."""
    return etag == told or (etag.startswith("?") and told not in known)

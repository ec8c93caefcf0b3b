"""Searches of tensors by words, an expression or the beginning of their names, in bounded work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from protoslice import _core
from protoslice.catalog.paging import PageBudget, ResultPage, item_bytes
from protoslice.concurrency import Job
from protoslice.errors import InvalidInput
from protoslice.facts import TensorEntry
from protoslice.tensors.listing import Tensors, entry_of
from protoslice.tensors.model import Tensor

_MOST_WORDS: Final = 16
_WORK: Final = 32 << 20
"""Bytes of names that one page looks at; of those that a costly expression is sought in, a share."""
_EACH: Final = 32
"""Bytes that a name counts for beside its own."""
_AT_ONCE: Final = 256
_SLICE: Final = 64 << 10
"""Bytes of names per slice of work."""


class NameSearch:
    """Names with `prefix` at their beginning, all words of `search` in any case, and `regex` anywhere.

    None matches all. `InvalidInput` for an expression that is none or too large, and for too many words.
    """

    def __init__(self, search: str | None = None, regex: str | None = None, prefix: str | None = None) -> None:
        self._words = (search or "").casefold().split()
        if len(self._words) > _MOST_WORDS:
            raise InvalidInput(f"Too many words in the search: at most {_MOST_WORDS}")
        self._prefix = prefix or ""
        self._pattern = _core.Pattern(regex) if regex else None
        self.is_any = not self._words and not self._prefix and self._pattern is None

    @property
    def work(self) -> int:
        """Bytes of names that may be looked at for one page."""
        return _WORK // (1 if self._pattern is None else self._pattern.weight)

    def fits(self, names: Sequence[str]) -> Sequence[bool]:
        """True for each of the names that is sought."""
        found = [self._has_words(name) for name in names]
        if self._pattern is None or not any(found):
            return found
        encoded = [name.encode("utf-8", "surrogatepass") for name, fits in zip(names, found, strict=True) if fits]
        sought = iter(self._pattern.are_in(encoded))
        return [fits and next(sought) for fits in found]

    def _has_words(self, name: str) -> bool:
        if not name.startswith(self._prefix):
            return False
        folded = name.casefold() if self._words else ""
        return all(word in folded for word in self._words)


def page_job(
    found: Tensors,
    order: Sequence[int],
    first: int,
    search: NameSearch,
    fits: Callable[[Tensor], bool],
    room: PageBudget,
) -> Job[ResultPage[TensorEntry]]:
    """Return a page of the tensors of `order` that fit.

    The page begins at `first`. A page may be empty and have a next one: only so many names are looked at for each.
    """
    entries, left = list[TensorEntry](), search.work
    for at, names in _slices(found, order, first):
        for place, sought in enumerate(search.fits(names), at):
            tensor = found[order[place]] if sought else None
            if tensor is not None and fits(tensor):
                entry = entry_of(tensor)
                if not room.takes(entry_bytes(entry)):
                    return ResultPage(entries, str(place))
                entries.append(entry)
        left -= sum(map(len, names)) + _EACH * len(names)
        after = at + len(names)
        if left <= 0 and after < len(order):
            return ResultPage(entries, str(after))
        yield
    return ResultPage(entries, None)


def entry_bytes(entry: TensorEntry) -> int:
    """Return the bytes of an entry's JSON, about."""
    return item_bytes(entry.name, entry.address, entry.file, entry.problem, entry.shape)


def _slices(found: Tensors, order: Sequence[int], first: int) -> Iterator[tuple[int, list[str]]]:
    """Names of the tensors of `order` from `first` on, some at a time, with the place of their first."""
    called, names, size = found.key, list[str](), 0
    for place in range(first, len(order)):
        names.append(called(order[place])[0])
        size += len(names[-1])
        if len(names) == _AT_ONCE or size >= _SLICE:
            yield place + 1 - len(names), names
            names, size = [], 0
    if names:
        yield len(order) - len(names), names

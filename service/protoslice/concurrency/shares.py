"""Places for work that waits or costs much: bounded in all, and for each client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from protoslice.errors import ClientLimit, TooMany


class Shares:
    """At most `most` places, of which one client has at most `each`.

    0, as for `most` where nothing bounds all together, is no limit, and the client "" has none.
    """

    def __init__(self, most: int, each: int, what: str) -> None:
        """Places for the work `what`, named in the plural."""
        self._most = most
        self._each = each
        self._what = what
        self._taken = 0
        self._of: Counter[str] = Counter()

    def take(self, client: str) -> None:
        """Take a place; `TooMany` or `ClientLimit` when none is left."""
        if self._each and client and self._of[client] >= self._each:
            raise ClientLimit(f"Limit per client reached: {self._each} {self._what}", limit=self._each)
        if self._most and self._taken >= self._most:
            raise TooMany(f"Limit reached: {self._most} {self._what}", limit=self._most)
        self._taken += 1
        self._of[client] += 1

    def give(self, client: str) -> None:
        """Give a place back."""
        self._taken -= 1
        self._of[client] -= 1
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Have a place while the context lasts; see `take`."""
        self.take(client)
        try:
            yield
        finally:
            self.give(client)

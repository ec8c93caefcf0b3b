"""Spaces: stores of one storage that know nothing of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from protoslice.catalog.paging import ResultPage
from protoslice.catalog.spaces import DEFAULT_SPACE, Quota, Quotas, SpaceRow, SpaceTable
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.results import SingleFlight
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.stores.service import Stores

_OPENED: Final = 256
"""Spaces kept in memory. They are small: opened stores, threads and caches are shared by all."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def is_space(name: str) -> bool:
    """True when `name` may be the name of a space."""
    return _NAME.fullmatch(name) is not None


class Spaces:
    """Spaces of a catalogue, of which `default` is open."""

    def __init__(self, default: Stores) -> None:
        self._table = SpaceTable(default.database)
        self._default = default
        self._opened: dict[str, Stores] = {DEFAULT_SPACE: default}
        self._opening: SingleFlight[str, Stores] = SingleFlight()

    def opened(self, name: str) -> Stores | None:
        """The stores of a space that is in memory; None for any other."""
        return self._opened.get(name)

    async def get(self, name: str) -> Stores:
        """The stores of a space; `NotFound` when there is none of that name."""
        return self._opened.get(name) or await self._opening.get(name, lambda: self._open(name))

    async def create(
        self,
        name: str,
        quota: Quota | None = None,
        *,
        if_match: Sequence[int | None] | None = None,
        if_none_match: bool = False,
    ) -> bool:
        """Create a space, or set the quota of one; True when it is new. Other replicas know within seconds.

        `InvalidInput` for a name that no space may have and for impossible limits, `Changed` unless the space has the
        version `if_match`, or there is none for `if_none_match`.
        """
        if not is_space(name):
            raise InvalidInput(
                f"Invalid space name {name!r}: use a-z, 0-9 and '-', at most 63 characters, not starting with '-'"
            )
        created = await self._table.put(name, quota, if_match=if_match, if_none_match=if_none_match)
        await self._refresh(name)
        return created

    async def usage(self, name: str) -> SpaceRow:
        """Return what a space holds, and its quota; the limits of the service where the space has none.

        Raise `NotFound` if there is none of that name.
        """
        return self._limited(await self._table.get(name))

    async def change_limits(
        self, name: str, limits: Mapping[str, int | None], *, if_match: Sequence[int | None] | None = None
    ) -> None:
        """Set some limits of a space by their columns, and leave the others; other replicas know within seconds.

        `Changed` unless its version is `if_match`, when given.
        """
        await self._table.change_limits(name, limits, if_match=if_match)
        await self._refresh(name)

    async def remove(
        self, name: str, *, with_stores: bool = False, if_match: Sequence[int | None] | None = None
    ) -> None:
        """Remove a space; other replicas know within seconds, and the database refuses their changes at once.

        `Conflict` unless it is empty or goes `with_stores`, `Changed` unless its version is `if_match`, when given.
        """
        if name == DEFAULT_SPACE:
            raise Conflict(f"The space {name!r} cannot be removed, only its stores")
        await self._table.remove(name, with_stores=with_stores, if_match=if_match)
        self._opened.pop(name, None)

    async def _refresh(self, name: str) -> None:
        if (opened := self.opened(name)) is not None:
            await opened.quotas.refresh()

    def quotas(self) -> Iterator[tuple[str, Quotas]]:
        """Yield names and quotas of the spaces in memory."""
        return ((name, stores.quotas) for name, stores in [*self._opened.items()])

    async def refresh(self) -> None:
        """Read usage and quotas of the spaces in memory, and forget those that were removed."""

        async def refresh(name: str) -> None:
            try:
                row = await self._table.get(name)
            except NotFound:
                self._opened.pop(name, None)
            else:
                if (opened := self._opened.get(name)) is not None:
                    opened.quotas.learn(row)

        await map_concurrently(refresh, [*self._opened])

    async def page(self, *, limit: int, cursor: str | None = None) -> ResultPage[SpaceRow]:
        """A page of spaces, the default space first; the cursor is the last name of the page before."""
        if cursor is not None and not is_space(cursor):
            raise InvalidInput("this cursor was not given by this service")
        found = list[SpaceRow]()
        if cursor is None:
            with suppress(NotFound):
                found.append(await self._table.get(DEFAULT_SPACE))
        last = "" if cursor in {None, DEFAULT_SPACE} else cursor or ""
        rows = await self._table.page(limit + 2, last)
        found += [row for row in rows if row.name != DEFAULT_SPACE]
        shown = [self._limited(row) for row in found[:limit]]
        return ResultPage(shown, shown[-1].name if len(found) > limit else None)

    async def close(self) -> None:
        """Close the stores of all spaces."""
        await self._opening.idle()
        await self._default.close()

    def _limited(self, row: SpaceRow) -> SpaceRow:
        return replace(row, quota=row.quota.over(self._default.quotas.defaults))

    async def _open(self, name: str) -> Stores:
        if not is_space(name):
            raise NotFound(f"No space {name!r}")
        row = await self._table.get(name)
        stores = self._default.of_space(name)
        stores.quotas.learn(row)
        self._opened[name] = stores
        while len(self._opened) > _OPENED:
            # The oldest but the default one. Not closed: requests may be using it, and it holds nothing of its own.
            del self._opened[next(each for each in self._opened if each != DEFAULT_SPACE)]
        return stores

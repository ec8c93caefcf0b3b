"""Spaces: stores behind walls, each in a folder of one storage. No space knows of another's content."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import InvalidInput, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, PrefixStorage, Storage
from protoslice.stores.collection.garbage import GRACE_SECONDS, GarbageReport
from protoslice.stores.collection.tally import keep_tally
from protoslice.stores.layout import keys
from protoslice.stores.names import DEFAULT_SPACE
from protoslice.stores.paging import ResultPage
from protoslice.stores.quotas import Ledgers, Quota, SpaceLedger, SpaceRoom
from protoslice.stores.service import Stores

_OPENED: Final = 256
"""Spaces kept in memory. They are small: opened stores, threads and caches are shared by all."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LAST: Final = "~"
"""Segment behind all others of a space."""


def is_space(name: str) -> bool:
    """True when `name` may be the name of a space."""
    return _NAME.fullmatch(name) is not None


async def space_folders(storage: Storage) -> AsyncIterator[ObjectKey]:
    """The folders of all spaces of a storage but the default one, which has none."""
    name = await _following(storage, None)
    while name is not None:
        yield keys.space(name)
        name = await _following(storage, name)


async def _following(storage: Storage, name: str | None) -> str | None:
    """The first space behind `name`, in the order of keys; None at the end."""
    # One listing for each space: a storage cannot list folders, and a space may hold millions of objects.
    after = None if name is None else keys.space(name) / _LAST
    page = await storage.list(keys.SPACES, after=after, limit=1)
    return page.items[0].key.segments[1] if page.items else None


@dataclass(frozen=True, slots=True)
class SpaceUsage:
    """Holdings of a space, and its quota with the limits of the service where it has none of its own."""

    name: str
    used: SpaceLedger
    quota: Quota


class Spaces:
    """Spaces of a storage whose own stores are those of the default space."""

    def __init__(self, storage: Storage, default: Stores) -> None:
        self._storage = storage
        self._default = default
        self._opened: dict[str, Stores] = {DEFAULT_SPACE: default}
        self._opening: SingleFlight[str, Stores] = SingleFlight()

    def opened(self, name: str) -> Stores | None:
        """The stores of a space that is in memory; None for any other."""
        return self._opened.get(name)

    async def get(self, name: str) -> Stores:
        """The stores of a space; `NotFound` when there is none of that name."""
        return self._opened.get(name) or await self._opening.get(name, lambda: self._open(name))

    async def create(self, name: str) -> bool:
        """Create a space; True when it is new. `InvalidInput` for a name that no space may have."""
        if not is_space(name):
            raise InvalidInput(
                f"Invalid space name {name!r}: use a-z, 0-9 and '-', at most 63 characters, not starting with '-'"
            )
        try:
            await self.get(name)
        except NotFound:
            await self._default.below(keys.space(name), create=True)
            return True
        return False

    async def usage(self, names: Sequence[str]) -> Sequence[SpaceUsage]:
        """Holdings and quota of each of these spaces."""
        return await map_concurrently(self._usage_of, names)

    async def set_quota(self, name: str, quota: Quota) -> None:
        """Set the quota of a space; other replicas know within seconds. `InvalidInput` for impossible limits."""
        await (await self.get(name)).room.set_quota(quota)

    async def _usage_of(self, name: str) -> SpaceUsage:
        opened = self._opened.get(name)
        if opened is None:
            found = await Ledgers(PrefixStorage(self._storage, keys.space(name))).read_if_sound()
            ledger = found or SpaceLedger()
            return SpaceUsage(name, ledger, ledger.quota.over(self._default.room.defaults))
        await opened.room.share()
        return SpaceUsage(name, opened.room.used, opened.room.quota)

    async def share_usage(self) -> None:
        """Tell and learn what the spaces in memory hold, of those that were asked for something since."""
        for stores in [*self._opened.values()]:
            if stores.room.is_touched:
                await stores.room.share()

    def rooms(self) -> Iterator[tuple[str, SpaceRoom]]:
        """Names and rooms of the spaces in memory."""
        return ((name, stores.room) for name, stores in [*self._opened.items()])

    async def page(self, *, limit: int, cursor: str | None = None) -> ResultPage[str]:
        """A page of names, the default space first; the cursor is the last name of the page before."""
        if cursor is not None and not is_space(cursor):
            raise InvalidInput("this cursor was not given by this service")
        found = [] if cursor is not None else [DEFAULT_SPACE]
        last = None if cursor in {None, DEFAULT_SPACE} else cursor
        while len(found) < limit:
            last = await _following(self._storage, last)
            if last is None:
                return ResultPage(found)
            found.append(last)
        return ResultPage(found, found[-1])

    async def collect_garbage(self, *, grace_seconds: float = GRACE_SECONDS, dry_run: bool = False) -> GarbageReport:
        """`Stores.collect_garbage` in one space after the other; the sum of the reports, its tally kept."""
        found = await self._default.collect_garbage(grace_seconds=grace_seconds, dry_run=dry_run)
        async for folder in space_folders(self._storage):
            stores = await self._default.below(folder)
            report = await stores.collect_garbage(grace_seconds=grace_seconds, dry_run=dry_run)
            damaged = report.unreadable
            found += replace(report, unreadable=damaged and f"{folder}/{damaged}")
        if found.there is not None:
            await keep_tally(self._storage, found.there)
        return found

    async def close(self) -> None:
        """Close the stores of all spaces, once they have told what they took in."""
        await self._opening.idle()
        with suppress(ProtosliceError):  # until the next collection the numbers are too small then
            await self.share_usage()
        for stores in reversed([*self._opened.values()]):
            await stores.close()

    async def _open(self, name: str) -> Stores:
        if not is_space(name):
            raise NotFound(f"No space {name!r}")
        try:
            stores = await self._default.below(keys.space(name))
        except NotFound:
            raise NotFound(f"No space {name!r}") from None
        await stores.room.share()  # from the first upload on its quota is known
        self._opened[name] = stores
        while len(self._opened) > _OPENED:
            # The oldest but the default one. Not closed: requests may be using it, and it holds nothing of its own.
            del self._opened[next(each for each in self._opened if each != DEFAULT_SPACE)]
        return stores

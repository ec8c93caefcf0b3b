"""Spaces, their quotas and their usage.

The usage is exact. Each transaction that changes the usage ends with a statement that adds to one of several slots.
Commits in one space therefore seldom wait for each other. Near a limit they do wait, so that the limit is never
exceeded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass
from operator import attrgetter
from typing import Final

from protoslice.catalog.audit import EVERY_SPACE, record
from protoslice.concurrency.results import SingleFlight
from protoslice.database.transactions import ACTOR, Actor, Database, Row, Transaction, check_unchanged
from protoslice.errors import Conflict, InvalidInput, NotFound, QuotaExceeded, SpaceLimit
from protoslice.sizes import format_size

DEFAULT_SPACE: Final = "default"
"""Name of the space of all requests whose path names no space."""
_SLOTS: Final = 16
_FULL: Final = 0.9
"""Fraction of a quota above which commits wait for each other."""
_LARGE: Final = 0.005
"""Largest fraction of a quota that one commit may add without waiting for other commits."""
_MOST: Final = (1 << 63) - 1
LIMITS: Final = ("quota_bytes", "quota_stores", "quota_open_uploads", "quota_requests")
"""Columns for the fields of `Quota`, in the same order."""
_QUOTA: Final = ", ".join(LIMITS)
_SUMS: Final = ", ".join(f"coalesce(sum({each}), 0)" for each in ("stored_bytes", "stores", "logical_bytes", "entries"))
_SPACES: Final = f"""
    SELECT name, {_QUOTA}, {_SUMS} FROM (SELECT name, {_QUOTA} FROM spaces WHERE removed IS NULL AND {{}}) p
    LEFT JOIN usage ON space = name GROUP BY name, {_QUOTA} ORDER BY name"""


@dataclass(frozen=True, slots=True)
class SpaceUsage:
    """The amounts that a space holds."""

    stored_bytes: int = 0
    """Bytes of objects, each counted once, and of files and manifests in the catalogue."""
    stores: int = 0
    logical_bytes: int = 0
    """Bytes of the files of all stores, including bytes that stores share."""
    entries: int = 0
    """Number of tags, repositories, former names of repositories, branches, commits, artifacts, blobs and manifests."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a space; 0 means unlimited, and None means that the service's limit applies."""

    stored_bytes: int | None = None
    """Bytes of objects, each counted once; objects of removed stores count until they are collected."""
    stores: int | None = None
    open_uploads: int | None = None
    """Number of resumable uploads that are not finished yet."""
    requests: int | None = None
    """Number of concurrent requests at each replica."""

    def check(self) -> None:
        """Raise `InvalidInput` for a limit that is below 0 or has more than 63 bits."""
        for name, value in asdict(self).items():
            if value is not None and (type(value) is not int or not 0 <= value <= _MOST):
                raise InvalidInput(f"Invalid quota {name}: use a number from 0 (no limit) to {_MOST}")

    def over(self, defaults: Quota) -> Quota:
        """Return these limits, completed by the limits of `defaults` wherever a limit is None."""
        both = zip(_limits_of(self), _limits_of(defaults), strict=True)
        return Quota(*[default if limit is None else limit for limit, default in both])


_limits_of: Final = attrgetter("stored_bytes", "stores", "open_uploads", "requests")
"""Function that returns the limits of a quota, in order; `astuple` is slower because it copies each limit."""

NO_QUOTA: Final = Quota(stored_bytes=0, stores=0, open_uploads=0, requests=0)
"""A quota in which everything is unlimited."""


@dataclass(frozen=True, slots=True)
class SpaceRow:
    """A space with its usage and its own limits."""

    name: str
    held: SpaceUsage
    quota: Quota
    version: Sequence[int | None]
    """The space's own limits and usage; a conditional write compares them with the current limits and usage."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A counter that changes the usage of a space.

    The fields hold the limits of the service. They apply to amounts for which the space has no own limit; 0 means
    unlimited.
    """

    space: str
    stored_bytes: int = 0
    stores: int = 0
    entries: int = 0

    def add(
        self, tx: Transaction, *, stored_bytes: int = 0, stores: int = 0, logical_bytes: int = 0, entries: int = 0
    ) -> None:
        """Add to the usage, or subtract from it; this must be the last statement of a transaction.

        Raise `QuotaExceeded` if the usage then exceeds a limit.
        """
        if not stored_bytes and not stores and not entries:
            return
        if stored_bytes > 0 or stores > 0 or entries > 0:
            self.check(tx, max(stored_bytes, 0), max(stores, 0), max(entries, 0))
        tx.run(
            """
            INSERT INTO usage (space, slot, stored_bytes, stores, logical_bytes, entries)
            VALUES (:space, :slot, :stored, :stores, :logical, :entries)
            ON CONFLICT (space, slot) DO UPDATE SET
                stored_bytes = usage.stored_bytes + excluded.stored_bytes, stores = usage.stores + excluded.stores,
                logical_bytes = usage.logical_bytes + excluded.logical_bytes,
                entries = usage.entries + excluded.entries""",
            space=self.space,
            slot=random.randrange(_SLOTS),
            stored=stored_bytes,
            stores=stores,
            logical=logical_bytes,
            entries=entries,
        )

    def check(self, tx: Transaction, stored_bytes: int, stores: int, entries: int = 0) -> None:
        """Raise `QuotaExceeded` if the space has no capacity for these additional amounts."""
        row = tx.first("SELECT quota_bytes, quota_stores FROM spaces WHERE name = :space", space=self.space)
        own = (None, None) if row is None else row
        most_bytes = self.stored_bytes if own[0] is None else own[0]
        most_stores = self.stores if own[1] is None else own[1]
        if not most_bytes and not most_stores and not self.entries:
            return
        limits = ((most_bytes, stored_bytes), (most_stores, stores), (self.entries, entries))
        used = _held(tx, self.space)
        there = (used.stored_bytes, used.stores, used.entries)
        if any(
            most and (new > _LARGE * most or old + new > _FULL * most)
            for (most, new), old in zip(limits, there, strict=True)
        ):
            tx.all("SELECT 1 FROM spaces WHERE name = :space FOR NO KEY UPDATE", space=self.space)
            used = _held(tx, self.space)
        check_quota(used, most_bytes, most_stores, stored_bytes, stores, tx.actor)
        if entries and self.entries and used.entries + entries > self.entries:
            raise QuotaExceeded(
                exceeded(
                    f"the space has {used.entries} of at most {self.entries} tags, branches, commits, repositories and "
                    "artifacts: remove some of these",
                    tx.actor,
                )
            )


def check_quota(
    used: SpaceUsage, most_bytes: int, most_stores: int, stored_bytes: int, stores: int, actor: Actor | None
) -> None:
    """Raise `QuotaExceeded` if a space has no capacity for more bytes and stores; a limit of 0 means unlimited."""
    if stored_bytes and most_bytes and used.stored_bytes + stored_bytes > most_bytes:
        raise QuotaExceeded(
            exceeded(
                f"the space stores {_size(used.stored_bytes)} of at most {_size(most_bytes)} and has no room for "
                f"{_size(stored_bytes)} more: remove stores. "
                "Removed stores count until garbage collection deletes their data",
                actor,
            )
        )
    if stores and most_stores and used.stores + stores > most_stores:
        raise QuotaExceeded(
            exceeded(f"the space has {used.stores} of at most {most_stores} stores: remove some", actor)
        )


def exceeded(what: str, actor: Actor | None) -> str:
    """Return the message about an exceeded quota; only callers who may read in the space see its totals."""
    shown = (
        what if actor is None or actor.reads else "the space has no room for this: ask the operator to raise its quota"
    )
    return f"Quota exceeded: {shown}"


class SpaceTable:
    """The spaces of the catalogue."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str) -> bool:
        """Insert a space; return False if a space of that name exists."""
        return await self.put(name)

    async def put(
        self,
        name: str,
        quota: Quota | None = None,
        *,
        if_match: Sequence[int | None] | None = None,
        if_none_match: bool = False,
    ) -> bool:
        """Insert a space unless it exists, and set its limits if `quota` is not None; return True if the space is new.

        Raise `InvalidInput` for invalid limits. Raise `Changed` if `if_match` is neither None nor the space's version.
        If `if_none_match` is True, raise `Changed` if the space exists.
        """
        limits = dict[str, int | None]()
        if quota is not None:
            quota.check()
            limits = dict(zip(LIMITS, astuple(quota), strict=True))
        sql = "INSERT INTO spaces (name, created) VALUES (:name, :now) ON CONFLICT DO NOTHING"

        def work(tx: Transaction) -> bool:
            created = if_match is None and tx.run(sql, name=name, now=tx.now) == 1
            if created:
                record(tx, EVERY_SPACE, "space.created", name, {})
            if not _change(tx, name, limits, if_match, if_none_match and not created):
                raise Conflict(f"The name {name!r} is taken by a removed space until its data is deleted: use another")
            return created

        return await self._database.write(work)

    async def remove(self, name: str, *, with_stores: bool, if_match: Sequence[int | None] | None = None) -> None:
        """Remove a space, after which no request can change anything in it; raise `NotFound` if it does not exist.

        Raise `Conflict` if the space has stores, names or open uploads and `with_stores` is False. If `if_match` is
        not None, raise `Changed` unless it is the space's version. A space that was not empty can be restored until
        `purge_spaces` deletes its rows.
        """
        uploads = "SELECT 1 FROM uploads WHERE space = :space AND state IN ('open', 'complete') AND used = 0 LIMIT 1"

        def work(tx: Transaction) -> None:
            # The lock waits for requests that have changed something in the space; later statements see their changes.
            row = tx.first(f"SELECT {_QUOTA} FROM spaces WHERE name = :name AND removed IS NULL FOR UPDATE", name=name)
            held = _held(tx, name)
            check_unchanged(f"Space {name!r}", row and _version(row, held), if_match and tuple(if_match))
            if row is None:
                raise NotFound(f"No space {name!r}")
            is_empty = not held.stores and not held.entries and tx.first(uploads, space=name) is None
            if not is_empty and not with_stores:
                stores, names = (
                    f"{count} {what}{'' if count == 1 else 's'}"
                    for count, what in ((held.stores, "store"), (held.entries, "name"))
                )
                raise Conflict(
                    f"The space {name!r} is not empty: it has {stores}, {names}, and perhaps open uploads. Remove "
                    "these first, or remove the space with all of them (--with-stores, or ?with_stores=true)"
                )
            tx.run("UPDATE spaces SET removed = :now WHERE name = :name", name=name, now=0 if is_empty else tx.now)
            record(tx, EVERY_SPACE, "space.removed", name, {"stores": held.stores})

        await self._database.write(work)

    async def restore(self, name: str) -> bool:
        """Undo the removal of a space; return False if it does not exist or its data is already being deleted."""

        def work(tx: Transaction) -> bool:
            if not tx.run("UPDATE spaces SET removed = NULL WHERE name = :name AND removed > 0", name=name):
                return False
            record(tx, EVERY_SPACE, "space.restored", name, {})
            return True

        return await self._database.write(work)

    async def get(self, name: str) -> SpaceRow:
        """Return a space; raise `NotFound` if it does not exist."""
        row = await self._database.read(lambda tx: tx.first(_SPACES.format("name = :name"), name=name))
        if row is None:
            raise NotFound(f"No space {name!r}")
        return _space(row)

    async def page(self, limit: int, after: str = "") -> list[SpaceRow]:
        """Return at most `limit` spaces whose names sort after `after`."""
        sql = _SPACES.format("name > :after ORDER BY name LIMIT :limit")
        return await self._database.read(lambda tx: [_space(row) for row in tx.all(sql, after=after, limit=limit)])

    async def change_limits(
        self, name: str, limits: Mapping[str, int | None], *, if_match: Sequence[int | None] | None = None
    ) -> None:
        """Set some of the `LIMITS` of a space; raise `NotFound` if the space does not exist.

        Raise `Changed` if `if_match` is neither None nor the space's version.
        """
        if not await self._database.write(lambda tx: _change(tx, name, limits, if_match, False)):
            raise NotFound(f"No space {name!r}")

    async def totals(self) -> tuple[SpaceUsage, int]:
        """Return the total usage of all spaces, and the number of their tags."""
        tags = "SELECT count(*) FROM names WHERE repository = 0 AND kind = 'tag'"

        def work(tx: Transaction) -> tuple[SpaceUsage, int]:
            return _held(tx), int(tx.all(tags)[0][0])

        return await self._database.read(work, background=True)


def _change(
    tx: Transaction,
    name: str,
    limits: Mapping[str, int | None],
    if_match: Sequence[int | None] | None,
    if_none_match: bool,
) -> bool:
    assert limits.keys() <= set(LIMITS), limits
    row = tx.first(f"SELECT {_QUOTA} FROM spaces WHERE name = :name AND removed IS NULL FOR NO KEY UPDATE", name=name)
    seen = row and _version(row, _held(tx, name) if if_match else SpaceUsage())
    check_unchanged(f"Space {name!r}", seen, if_match and tuple(if_match), if_none_match)
    now = dict(zip(LIMITS, row or (), strict=False))
    if row is None or limits.items() <= now.items():
        return row is not None
    sql = f"UPDATE spaces SET {', '.join(f'{each} = :{each}' for each in limits)} WHERE name = :name"
    tx.run(sql, name=name, **limits)
    record(tx, EVERY_SPACE, "space.changed", name, dict(limits))
    return True


def _version(limits: Sequence[int | None], held: SpaceUsage) -> tuple[int | None, ...]:
    """Return the version of a space, from which its entity tag is made: its limits and its usage."""
    return *limits, held.stored_bytes, held.stores


def discharge(tx: Transaction, bytes_of_spaces: Iterable[tuple[str, int]]) -> None:
    """Subtract bytes from the usage of spaces, given as pairs (space, bytes); a space may occur several times."""
    sizes: dict[str, int] = {}
    for space, size in bytes_of_spaces:
        sizes[space] = sizes.get(space, 0) + size
    for space, size in sorted(sizes.items()):
        Usage(space).add(tx, stored_bytes=-size)


def _held(tx: Transaction, space: str | None = None) -> SpaceUsage:
    """Return the usage of a space, or of all spaces."""
    where = "" if space is None else "WHERE space = :space"
    return SpaceUsage(*map(int, tx.all(f"SELECT {_SUMS} FROM usage {where}", space=space)[0]))


def _space(row: Row) -> SpaceRow:
    name, limits, held = row[0], row[1:5], SpaceUsage(*map(int, row[5:]))
    return SpaceRow(name, held, Quota(*limits), _version(limits, held))


def _size(size: int) -> str:
    return format_size(size) if size < 1024 else f"{format_size(size)} ({size} B)"


FRESH_SECONDS: Final = 1.0
"""Seconds after which usage and quota are read again; a commit always reads them, in its own transaction."""


class Quotas:
    """The limits of one space, completed by the limits of the service, and the usage that was last read."""

    def __init__(self, spaces: SpaceTable, space: str, defaults: Quota, *, entries: int = 0) -> None:
        """Limit the tags, commits and similar entries of the space to `entries`; 0 means unlimited."""
        self._table = spaces
        self._space = space
        self.defaults = defaults
        self._entries = entries
        self.quota = defaults
        """The limits that apply to the space; 0 means unlimited."""
        self._held = SpaceUsage()
        self._read_at = float("-inf")
        self._reading: SingleFlight[None, None] = SingleFlight()
        self.requests = 0
        """Number of running requests of the space at this replica."""

    @property
    def usage(self) -> Usage:
        """The counter with which transactions change the usage of the space."""
        return Usage(self._space, self.defaults.stored_bytes or 0, self.defaults.stores or 0, self._entries)

    @property
    def used(self) -> SpaceUsage:
        """The usage of the space when it was last read."""
        return self._held

    def learn(self, row: SpaceRow) -> None:
        """Replace the quota and the usage by values that were just read."""
        self.quota, self._held = row.quota.over(self.defaults), row.held
        self._read_at = asyncio.get_running_loop().time()

    async def refresh(self, *, after_seconds: float = 0.0) -> None:
        """Read the quota and the usage, unless they were read less than `after_seconds` ago."""
        if asyncio.get_running_loop().time() >= self._read_at + after_seconds:
            await self._reading.get(None, self._read)

    async def check(self, *, stored_bytes: int = 0, stores: int = 0) -> None:
        """Raise `QuotaExceeded` if the space has no capacity for these additional amounts."""
        await self.refresh(after_seconds=FRESH_SECONDS)
        if self.quota.stored_bytes or self.quota.stores:
            check_quota(
                self._held, self.quota.stored_bytes or 0, self.quota.stores or 0, stored_bytes, stores, ACTOR.get()
            )

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request while the context is active; raise `SpaceLimit` if too many requests are running."""
        most = self.quota.requests
        if most and self.requests >= most:
            said = f"{self.requests} requests are running in this space, and at most {most} are allowed"
            raise SpaceLimit(exceeded(said, ACTOR.get()))
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def check_open_uploads(self, count: int) -> None:
        """Raise `SpaceLimit` if the space already has `count` open uploads and may not have another."""
        most = self.quota.open_uploads
        if most and count >= most:
            said = f"the space has {count} open uploads, and at most {most} are allowed: finish or remove some"
            raise SpaceLimit(exceeded(said, ACTOR.get()))

    async def _read(self) -> None:
        with suppress(NotFound):
            self.learn(await self._table.get(self._space))

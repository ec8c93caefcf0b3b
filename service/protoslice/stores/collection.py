"""Garbage collection of abandoned uploads and removed stores, which does not disturb readers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from protoslice.catalog.abandoned import forget_spaces, purge_commits, purge_repositories, purge_spaces
from protoslice.catalog.collector import CollectorTable, TrashRow
from protoslice.catalog.kept_files import purge_kept_files
from protoslice.catalog.manifest import Manifest, sums_of
from protoslice.catalog.marker import marker_of, require_owner
from protoslice.catalog.objects import UNFINISHED_SECONDS
from protoslice.catalog.spaces import SpaceRow
from protoslice.concurrency.chores import run_all
from protoslice.concurrency.gather import map_concurrently
from protoslice.database import Database
from protoslice.database.transactions import SECOND, Row, Transaction
from protoslice.defaults import DELETION_DELAY_SECONDS
from protoslice.errors import ProtosliceError
from protoslice.storage import ObjectKey, Storage

_log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 86400.0
"""Seconds for which a store can be restored after its removal."""
EVERY_SECONDS: Final = 60.0
"""Seconds between two garbage collections of a service."""
_PAGE: Final = 50
"""Number of manifests that are read at a time."""
_TOLERATED_SECONDS: Final = 60.0
"""Largest correction of the clock between two readings, in seconds, that does not count as a jump."""

Ranges: TypeAlias = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """The counts of a garbage collection."""

    objects: int = 0
    """Number of objects that nothing refers to any more; their bytes are deleted after a delay."""
    bytes: int = 0
    stores: int = 0
    """Number of removed stores that can no longer be restored."""
    deleted: int = 0
    """Number of objects, dropped in this or an earlier collection, whose bytes this collection deleted."""
    leftovers: int = 0
    """Number of leftovers of interrupted writers, at least a day old, that were deleted from the storage."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a space."""

    stores: int
    logical_bytes: int
    stored_bytes: int


async def collect_garbage(
    storage: Storage,
    database: Database,
    *,
    grace_seconds: float = GRACE_SECONDS,
    unfinished_seconds: float = UNFINISHED_SECONDS,
    delay_seconds: float = DELETION_DELAY_SECONDS,
    dry_run: bool = False,
) -> GarbageReport:
    """Delete everything that no store and no upload needs, in all spaces.

    Removed stores can be restored for `grace_seconds`. Bytes are deleted `delay_seconds` after their objects are
    dropped, so that readers can finish. Uploads that take longer than `unfinished_seconds` fail. A dry run rolls back
    its deletions from the database, and deletes no bytes. A step that fails does not stop the others; the first error
    is raised at the end.
    """
    if dry_run:
        async with database.rehearsal() as rehearsed:
            return await _collect(None, rehearsed, grace_seconds, unfinished_seconds, delay_seconds)
    return await _collect(storage, database, grace_seconds, unfinished_seconds, delay_seconds)


async def _collect(
    storage: Storage | None, database: Database, grace_seconds: float, unfinished_seconds: float, delay_seconds: float
) -> GarbageReport:
    """Collect garbage in a database and, if `storage` is not None, delete bytes in the storage."""
    table, done = CollectorTable(database), GarbageReport()

    async def purge_stores() -> None:
        nonlocal done
        done = replace(done, stores=await table.purge_stores(grace_seconds))

    async def drop_objects() -> None:
        nonlocal done
        dropped = await table.drop_objects(delay_seconds)
        done = replace(done, objects=dropped.objects, bytes=dropped.stored_bytes)

    async def delete_bytes() -> None:
        nonlocal done
        if storage is not None:
            done = replace(done, deleted=await empty_trash(storage, database))

    async def remove_leftovers() -> None:
        nonlocal done  # the storage applies its own delay of a day, since a slow upload looks like a leftover
        if storage is not None:
            done = replace(done, leftovers=await storage.collect_garbage())

    await run_all(
        [
            partial(table.expire_objects, unfinished_seconds), table.expire_uploads,
            partial(table.purge_uploads, grace_seconds), partial(purge_spaces, database, grace_seconds),
            partial(purge_kept_files, database, grace_seconds), partial(purge_repositories, database),
            partial(purge_commits, database), purge_stores, drop_objects, delete_bytes,
            partial(forget_spaces, database), remove_leftovers,
        ]
    )  # fmt: skip
    return done


async def doubt_clock(database: Database, watch: JumpWatch | None = None) -> tuple[float, JumpWatch]:
    """Return for how many seconds the database's clock must not be trusted, and the watch that decided this.

    If the clock was set ahead, everything seems older than it is. If `watch` is None, continue the watch of the last
    process on this machine.
    """

    def doubt(tx: Transaction) -> tuple[float, JumpWatch]:
        found = watch or JumpWatch(tx.all("SELECT clock FROM meta")[0][0] or "")
        wait = found.wait(tx.now / SECOND, GRACE_SECONDS)
        tx.run("UPDATE meta SET clock = :kept", kept=found.kept)
        return wait, found

    return await database.write(doubt, background=True)


async def collect_for_ever(storage: Storage, database: Database, delay_seconds: float) -> None:
    """Collect garbage every minute, unless the clock is in doubt; the next collection repeats steps that failed."""
    watch: JumpWatch | None = None
    with suppress(ProtosliceError):  # if this fails, the first collection reads the clock
        _, watch = await doubt_clock(database)
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            wait, watch = await doubt_clock(database, watch)
            if wait:
                _log.error(
                    "the clock of the database was set ahead: garbage collection waits for %d s, or until the clock "
                    "is right again", wait,
                )  # fmt: skip
                continue
            found = await collect_garbage(storage, database, delay_seconds=delay_seconds)
        except ProtosliceError as error:
            _log.warning("garbage collection failed: %s", error.message)
        else:
            if found.objects or found.stores or found.deleted:
                _log.info(
                    "garbage collection: %d stores, %d objects (%d bytes) removed; bytes of %d objects deleted",
                    found.stores, found.objects, found.bytes, found.deleted,
                )  # fmt: skip


def usage_of(row: SpaceRow) -> Usage:
    """Return the usage of a space."""
    return Usage(row.held.stores, row.held.logical_bytes, row.held.stored_bytes)


async def empty_trash(storage: Storage, database: Database) -> int:
    """Delete the bytes of objects whose delay has ended; return the number of objects.

    Raise `StorageUnavailable` if the storage now belongs to another catalogue.
    """

    async def delete(row: TrashRow) -> None:
        key = ObjectKey(row.key)
        if row.sums:
            await storage.delete(sums_of(key))
        await storage.delete(key)

    total, table = 0, CollectorTable(database)
    async for rows in table.trash():
        await require_owner(storage, await marker_of(database))
        await map_concurrently(delete, rows)
        await table.deleted(rows)
        total += len(rows)
    return total


@dataclass(frozen=True, slots=True)
class Stranded:
    """An object that is kept because stores use some of its bytes, although no store uses its other bytes."""

    id: int
    key: str
    size: int
    """Number of the object's bytes that no store uses."""
    stores: Sequence[str]
    """Digests of the stores that use other bytes of the object."""


async def stranded(database: Database, space: str, objects: Collection[int], digest: str) -> list[Stranded]:
    """Return those of `objects` that still contain bytes of the store `digest` after an erasure of the store.

    If the store no longer exists, count all bytes that no other store uses.
    """
    using = "SELECT store FROM store_objects WHERE space = :space AND object IN {listed}"
    manifests = "SELECT id, digest, manifest FROM stores WHERE space = :space AND id IN {listed}"
    named = "SELECT id, key, size FROM objects WHERE space = :space AND size IS NOT NULL AND id IN {listed}"
    rows = await database.export(lambda tx: tx.among(named, sorted(objects), space=space))
    sizes = {key: (id, size) for id, key, size in rows}
    stores = sorted({id for (id,) in await database.export(lambda tx: tx.among(using, sorted(objects), space=space))})
    own, others, users = dict[str, Ranges](), dict[str, Ranges](), dict[str, set[str]]()
    for first in range(0, len(stores), _PAGE):
        page = stores[first : first + _PAGE]
        for id, found, data in await database.read(partial(_among, manifests, page, space), background=True):
            ranges = own if found == digest else others
            for key, start, end in _used(Manifest.decode(bytes(data), id)):
                if key in sizes:
                    end = sizes[key][1] if end is None else end
                    ranges.setdefault(key, []).append((start, end))
                    if found != digest:
                        users.setdefault(key, set()).add(found)
        others = {key: _merged(ranges) for key, ranges in others.items()}
    left = []
    for key, digests in sorted(users.items()):
        id, size = sizes[key]
        wanted = _merged(own.get(key, ())) if own else [(0, size)]
        both = _total(_merged([*wanted, *others[key]]))
        if unused := both - _total(others[key]):
            left.append(Stranded(id, key, unused, sorted(digests)))
    return left


def _among(sql: str, ids: Sequence[int], space: str, tx: Transaction) -> list[Row]:
    return tx.among(sql, ids, space=space)


def _used(manifest: Manifest) -> Iterator[tuple[str, int, int | None]]:
    """Yield the ranges of bytes that a store uses: key, start and end; the end is None for the end of the object."""
    yield from ((key, 0, None) for key in manifest.beside.values())
    for stored in manifest.stored:
        yield from ((each.object.key, each.start, each.end) for each in stored.extents() if each.object.key is not None)


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of ranges, in order, as ranges that neither overlap nor touch."""
    merged: Ranges = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _total(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)


def elapsed() -> float:
    """Return the seconds of a clock that no one sets, and that, if possible, also counts while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot() -> str:
    """Return an id of the machine's current boot, or an empty text; `elapsed` is comparable only within one boot."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


class JumpWatch:
    """A watch that detects that a clock was set ahead, by comparing it with `elapsed` at each call."""

    def __init__(self, kept: str = "") -> None:
        """Continue with the value of `kept` from an earlier process, unless the machine was restarted since then."""
        self._seen: tuple[float, float] | None = None
        """The values of the watched clock and of `elapsed` when these clocks last agreed."""
        self._jumped: float | None = None
        with suppress(ValueError, TypeError):
            where, clock, passed, jumped = json.loads(kept or "[]")
            if where and where == boot():
                self._seen, self._jumped = (float(clock), float(passed)), None if jumped is None else float(jumped)

    @property
    def kept(self) -> str:
        """The state that a later process needs to continue the watch."""
        return json.dumps([boot(), *(self._seen or (None, None)), self._jumped])

    def wait(self, clock: float, most: float) -> float:
        """Return for how many seconds `clock` must not be trusted: the size of its jump, but at most `most`."""
        passed = elapsed()
        seen, since = self._seen or (clock, passed)
        ahead = (clock - seen) - (passed - since)
        if ahead > _TOLERATED_SECONDS:
            self._jumped = passed if self._jumped is None else self._jumped
            wait = min(ahead, most) - (passed - self._jumped)
            if wait > 0:
                return wait
        self._seen, self._jumped = (clock, passed), None
        return 0

"""Backups: folders or buckets that contain the objects of a storage and snapshots of its catalogue.

Objects never change and their keys are never used again, so a later backup copies only new objects. A hold keeps the
collector from deleting bytes meanwhile. The snapshot is written last: an interrupted backup leaves earlier backups
unchanged. The next backup continues an interrupted one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from protoslice.catalog.collector import Hold
from protoslice.catalog.manifest import Manifest, sums_of
from protoslice.catalog.marker import Marker, marker_of, read_marker, require_owner, write_marker
from protoslice.catalog.objects import LARGEST_SUMLESS
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.database import Database, Transaction
from protoslice.database.snapshots import NEEDED, Snapshot, note_snapshot, require_empty, take_snapshot
from protoslice.database.transactions import Row
from protoslice.errors import Conflict, IntegrityError, NotFound, ProtosliceError, Unsupported
from protoslice.serving.opened import is_sound
from protoslice.storage import ObjectKey, Storage

_log = logging.getLogger(__name__)

SNAPSHOTS: Final = ObjectKey("snapshots")
OBJECTS: Final = ObjectKey("objects")
GONE: Final = SNAPSHOTS / "gone.json"
"""Key of a backup's list of unneeded objects, each with the first snapshot that no longer contains the object."""
NO_SNAPSHOTS: Final = "No snapshots found: pass the URI of a backup, or of a storage with snapshots"
_NAME: Final = re.compile(r"snapshots/(\d{8}T\d{6}Z)\.sqlite")
_TIME: Final = "%Y%m%dT%H%M%SZ"
_HOUR: Final = 3600.0
_BATCH: Final = 256
"""Number of objects that are copied at the same time."""
_ROWS: Final = 10_000
"""Number of rows that a thread reads at a time."""
_SMALL: Final = 1 << 20
_SKEW_SECONDS: Final = 3600.0
"""Largest expected difference in seconds between the clocks of the storage and the service."""
Progress = Callable[[int], object]
"""Function that receives the size in bytes of each copied object."""


@dataclass(slots=True)
class Copied:
    """The result of a backup or a restoration."""

    snapshot: str = ""
    """Name of the snapshot, which is the time at which the snapshot was made."""
    objects: int = 0
    bytes: int = 0
    """Number of bytes of the copied objects; `objects` is the number of these objects."""
    kept: int = 0
    """Number of objects that the target already had."""
    deleted: int = 0
    """Number of deleted objects, which no snapshot needs any more."""
    missing: list[str] = field(default_factory=list)
    """Keys of objects in the catalogue that are missing or incomplete in the source."""


async def back_up(
    storage: Storage, database: Database, target: Storage, *, keep: int, progress: Progress | None = None
) -> Copied:
    """Copy a catalogue and its objects into `target`, and keep the newest `keep` snapshots there.

    Raise `Unsupported` unless the target is empty or contains backups of this catalogue.
    """
    mine = (await marker_of(database)).catalogue
    marker = await read_marker(target)
    if marker is None:
        async with aclosing(target.iterate(limit=1)) as found:
            async for each in found:
                raise Unsupported(
                    f"The target is not empty and not a backup: it contains {each.key}. Use an empty target"
                )
        await write_marker(target, Marker(mine, backup=True))
    elif not marker.backup:
        raise Unsupported("The target is the storage of a service, not a backup: use another place")
    elif marker.catalogue != mine:
        raise Unsupported("The target is the backup of another service: use another place")
    done = Copied()
    async with Hold(database) as hold, _temporary() as folder:
        path = folder / "catalog.sqlite"
        done.snapshot = await _new_name(target)
        await take_snapshot(database, path)
        snapshot = Snapshot(path)
        gone = await _copy_objects(Copier(storage, target, done, progress, hold.check), snapshot)
        await _put_file(target, SNAPSHOTS / f"{done.snapshot}.sqlite", path)
        hold.check()
        await _prune(target, gone, done, keep)
        await note_snapshot(database, dump=False)
    return done


async def dump_daily(database: Database, storage: Storage, *, keep: int, first_seconds: float = 60.0) -> None:
    """Write a snapshot of a catalogue into its storage once a day, without end; keep the newest `keep` snapshots."""
    wait = first_seconds
    while True:
        await asyncio.sleep(wait)
        wait = _HOUR
        try:
            if await _is_due(storage):
                await _dump(database, storage, keep)
        except Conflict:  # another process writes a snapshot, or a backup or check is running
            pass
        except (ProtosliceError, OSError) as error:
            _log.warning("the database could not be dumped into the storage: %s", error)


async def _is_due(storage: Storage) -> bool:
    names = await snapshots(storage)
    return not names or datetime.now(UTC) - _time_of(names[-1]) >= timedelta(days=1)


async def _dump(database: Database, storage: Storage, keep: int) -> None:
    database.check_writable()
    async with Hold(database), _temporary() as folder:
        if not await _is_due(storage):
            return
        name, path = await _new_name(storage), folder / "catalog.sqlite"
        await take_snapshot(database, path)
        await _put_file(storage, SNAPSHOTS / f"{name}.sqlite", path)
        await note_snapshot(database, dump=True)
        await _keep_newest(storage, keep)


async def _new_name(target: Storage) -> str:
    """Return a name for a new snapshot: the current time, or a second after the newest snapshot if that is later."""
    now = datetime.now(UTC)
    if names := await snapshots(target):
        now = max(now, _time_of(names[-1]) + timedelta(seconds=1))
    return now.strftime(_TIME)


def _time_of(name: str) -> datetime:
    return datetime.strptime(name, _TIME).replace(tzinfo=UTC)


async def snapshots(source: Storage) -> list[str]:
    """Return the names of all snapshots in a storage, oldest first."""
    found = list[str]()
    async with aclosing(source.iterate(SNAPSHOTS)) as items:
        async for each in items:
            if (match := _NAME.fullmatch(each.key.text)) and _is_plausible(match[1]):
                found.append(match[1])
    return found


async def _keep_newest(target: Storage, keep: int) -> list[str]:
    """Delete all snapshots except the newest `keep`; return the names of the snapshots that remain."""
    names = await snapshots(target)
    for old in names[:-keep]:
        await target.delete(SNAPSHOTS / f"{old}.sqlite")
    return names[-keep:]


def _is_plausible(name: str) -> bool:
    """Return True if `name` is the time of a snapshot, and not a time more than one day in the future."""
    try:
        return _time_of(name) < datetime.now(UTC) + timedelta(days=1)
    except ValueError:
        return False


async def restore(
    source: Storage,
    storage: Storage,
    database: Database,
    *,
    name: str | None = None,
    in_place: bool = False,
    take_over: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Fill an empty database and storage from a backup, by default from its newest snapshot.

    If `in_place` is True, `source` is the storage itself, and only the database is filled. A restoration that was
    interrupted continues. If `take_over` is True, the storage may belong to the original service, which then no
    longer deletes anything.
    """
    names = await snapshots(source)
    if not names:
        raise NotFound(NO_SNAPSHOTS)
    if name is not None and name not in names:
        raise NotFound(f"The backup has no snapshot {name[:40]!r}: the newest are {', '.join(names[-10:])}")
    done = Copied(snapshot=name or names[-1])
    async with _temporary() as folder:
        path = folder / "catalog.sqlite"
        await _get_file(source, SNAPSHOTS / f"{done.snapshot}.sqlite", path)
        snapshot = await Snapshot.open(path)
        await require_empty(database)
        there = await read_marker(storage)
        if there is None and not in_place and (await storage.list(OBJECTS, limit=1)).items:
            raise Unsupported("The storage is not empty: restore into a new one")
        if there is not None and (there.backup or there.catalogue != snapshot.catalogue_id):
            raise Unsupported("The storage belongs to another database: restore into a new one")
        if there is not None and not there.restoring and not take_over:
            raise Unsupported(
                "The storage is in use by the database of this backup: restore into a new storage, or add --take-over "
                "if that database is lost. A service that still uses this storage would lose data"
            )
        # The marker comes first: the collector of an original service that still runs then deletes no restored objects.
        own = Marker(snapshot.catalogue_id, incarnation=secrets.token_hex(16))
        await write_marker(storage, replace(own, restoring=True))
        if not in_place:
            await _copy_objects(Copier(source, storage, done, progress), snapshot)
        await snapshot.restore(database, bytes.fromhex(own.incarnation))
        if not done.missing:
            await write_marker(storage, own)
    return done


async def _copy_objects(copier: Copier, snapshot: Snapshot) -> set[str]:
    """Copy the objects of a snapshot that the target lacks; return the keys of objects that only the target has."""
    only_there = set[str]()
    async with aclosing(_compared(snapshot.objects(), copier.target)) as pairs:
        async for key, row, there in pairs:
            if row is None:
                only_there.add(key)
            elif there is not None and _is_whole(row[0], there):
                copier.done.kept += 1
            else:
                await copier.add(key, row[0])
    await copier.flush()
    return only_there


@dataclass(slots=True)
class Copier:
    """A copier of objects, which copies many objects at the same time."""

    source: Storage
    target: Storage
    done: Copied
    progress: Progress | None = None
    check: Callable[[], None] = lambda: None
    """Function that is called before each batch, and raises an error to stop the copier."""
    _wanted: list[tuple[str, int | None]] = field(default_factory=list)

    async def add(self, key: str, size: int | None) -> None:
        """Copy an object, either now or together with objects that are added later."""
        self._wanted.append((key, size))
        if len(self._wanted) >= _BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Copy all objects that were added and are not copied yet."""
        self.check()
        await map_concurrently(self._copy, self._wanted)
        self._wanted.clear()

    async def _copy(self, each: tuple[str, int | None]) -> None:
        key, size = ObjectKey(each[0]), each[1]
        try:
            sums = 0
            if size is None or size > LARGEST_SUMLESS:
                sums = await self._copy_sums(key, needed=size is not None)
            copied = sums + await _copy(self.source, self.target, key, None if size is None else size - sums)
        except (NotFound, IntegrityError):
            self.done.missing.append(each[0])
        else:
            self.done.objects, self.done.bytes = self.done.objects + 1, self.done.bytes + copied
            if self.progress is not None:
                self.progress(copied)

    async def _copy_sums(self, key: ObjectKey, *, needed: bool) -> int:
        try:
            return await _copy(self.source, self.target, sums_of(key), None)
        except NotFound:
            if needed:
                raise
            return 0


@dataclass(frozen=True, slots=True)
class Found:
    """The sizes of an object and of its checksum object in a storage, and the object's last change; None if missing."""

    size: int | None = None
    sums: int | None = None
    modified: datetime | None = None


def _is_whole(size: int | None, there: Found) -> bool:
    """Return True if an object is complete, including the checksum object that every large object has.

    `size` is the expected total size of the object and its checksum object, or None if it is unknown.
    """
    if there.size is None or (there.size > LARGEST_SUMLESS and there.sums is None):
        return False
    return size in {None, there.size + (there.sums or 0)}


async def _compared(
    rows: Iterator[tuple[str, int | None]], storage: Storage
) -> AsyncGenerator[tuple[str, tuple[int | None] | None, Found | None], None]:
    """Yield every key that is in `rows` or in the storage, in order.

    With each key, yield a tuple with the size in the row, or None if there is no row. Also yield the object's facts
    in the storage, or None if the storage does not have it.
    """
    batches = _in_batches(rows)
    listed = _objects(storage)
    async with aclosing(batches), aclosing(listed):
        row, there = await anext(batches, None), await anext(listed, None)
        while row is not None or there is not None:
            key = min(each[0] for each in (row, there) if each is not None)
            size = (row[1],) if row is not None and row[0] == key else None
            found = there[1] if there is not None and there[0] == key else None
            yield key, size, found
            if size is not None:
                row = await anext(batches, None)
            if found is not None:
                there = await anext(listed, None)


async def _in_batches(rows: Iterator[tuple[str, int | None]]) -> AsyncGenerator[tuple[str, int | None], None]:
    """Yield rows, which a thread reads many at a time."""

    def some() -> list[tuple[str, int | None]]:
        return list(islice(rows, _ROWS))

    while found := await asyncio.to_thread(some):
        for row in found:
            yield row


async def _objects(storage: Storage) -> AsyncGenerator[tuple[str, Found], None]:
    """Yield the keys of a storage's objects in order, each with the sizes of the object and of its checksums."""
    held: tuple[str, Found] | None = None
    async with aclosing(storage.iterate(OBJECTS)) as items:
        async for each in items:
            key = each.key.text
            base = key.removesuffix(".sums")
            if held is not None and held[0] != base:
                yield held
                held = None
            if key == base:
                held = (base, Found(each.size, held[1].sums if held else None, each.modified))
            else:
                held = (base, Found(held[1].size if held else None, each.size, each.modified))
    if held is not None:
        yield held


async def _copy(source: Storage, target: Storage, key: ObjectKey, size: int | None) -> int:
    """Copy an object and return its size in bytes; raise `IntegrityError` if the size is not `size`."""
    if size is not None and size <= _SMALL:
        data = (await source.get(key)).data
        if len(data) != size:
            raise IntegrityError(f"object {str(key)!r} has {len(data)} bytes, not {size}")
        await target.put(key, data)
        return size
    async with await target.writer(key) as writer:
        async with aclosing(source.stream(key)) as pieces:
            async for piece in pieces:
                await writer.write(piece)
        if size not in {None, writer.size}:
            raise IntegrityError(f"object {str(key)!r} has {writer.size} bytes, not {size}")
        copied = writer.size
        await writer.commit()
    return copied


@dataclass(slots=True)
class Checked:
    """The result of a check."""

    objects: int = 0
    """Number of objects that the catalogue needs."""
    stores: int = 0
    """Number of stores whose bytes were read."""
    missing: list[str] = field(default_factory=list)
    """Keys of objects that are missing or incomplete in the storage."""
    damaged: list[str] = field(default_factory=list)
    """Stores whose bytes do not match their checksums, in the form `space/id`."""
    unknown: list[str] = field(default_factory=list)
    """Keys of objects in the storage that are not in the catalogue."""


async def check(
    storage: Storage, database: Database, worker: Worker, *, read: bool = False, delete_unknown: bool = False
) -> Checked:
    """Compare the objects of a storage with the storage's catalogue.

    If `read` is True, also compare all bytes of the stores with their checksums. If `delete_unknown` is True, delete
    the objects that are not in the catalogue, except new ones.

    The service may keep running: objects that are being written are not reported.
    """
    done = Checked()
    async with Hold(database) as hold, _temporary() as folder:
        path = folder / "objects"
        begun = datetime.now(UTC) - timedelta(seconds=_SKEW_SECONDS)
        await database.export(lambda tx: _write_objects(tx, path))
        optional = set[str]()
        async with aclosing(_compared(_read_objects(path, optional), storage)) as pairs:
            async for key, row, there in pairs:
                if row is None:
                    if there is not None and there.modified is not None and there.modified < begun:
                        done.unknown.append(key)
                elif key not in optional:
                    done.objects += 1
                    if there is None or not _is_whole(row[0], there):
                        done.missing.append(key)
                optional.discard(key)
        hold.check()
        if delete_unknown:
            await require_owner(storage, await marker_of(database))
            await _delete_objects(storage, done.unknown)
        if read:
            await _read_stores(storage, database, done, worker)
    return done


def _write_objects(tx: Transaction, path: Path) -> None:
    """Write the objects of a catalogue to a file, sorted by key.

    Each line has the key, the size if it is known, and 0 if the object may be missing, else 1.
    """
    sql = f"""
        SELECT key, size, CASE WHEN {NEEDED} THEN 1 ELSE 0 END FROM objects
        UNION ALL SELECT key, NULL, 0 FROM trash ORDER BY 1"""
    with open(path, "w") as file:
        for rows in tx.batches(sql, 10_000):
            file.writelines(f"{key} {'' if size is None else size} {needed}\n" for key, size, needed in rows)


def _read_objects(path: Path, optional: set[str]) -> Iterator[tuple[str, int | None]]:
    with open(path) as file:
        for line in file:
            key, size, needed = line.rstrip("\n").split(" ")
            if needed == "0":
                optional.add(key)
            yield key, int(size) if size else None


async def _read_stores(storage: Storage, database: Database, done: Checked, worker: Worker) -> None:
    """Read the bytes of all stores and note damaged stores; bytes that several stores share are read once."""
    sql = """
        SELECT space, id, digest, manifest FROM stores
        WHERE deleted IS NULL AND (space, id) > (:space, :id) ORDER BY space, id LIMIT 50"""
    seen, space, id = set[str](), "", 0
    while rows := await database.read(partial(_rows, sql, space, id), background=True):
        for space, id, digest, data in rows:
            done.stores += 1
            try:
                sound = await is_sound(storage, Manifest.decode(bytes(data), id), worker, verify=True, seen=seen)
            except IntegrityError:
                sound = False
            if not sound:
                done.damaged.append(f"{space}/{digest}")


def _rows(sql: str, space: str, id: int, tx: Transaction) -> list[Row]:
    return tx.all(sql, space=space, id=id)


async def _prune(target: Storage, only_there: set[str], done: Copied, keep: int) -> None:
    """Delete old snapshots of a backup, and the objects that only the deleted snapshots need."""
    oldest, *_ = await _keep_newest(target, keep)
    before = dict[str, str]()
    with suppress(NotFound, ValueError):  # a missing list only means that objects are kept for longer
        before = dict(json.loads((await target.get(GONE)).data))
    gone = {key: before.get(key, done.snapshot) for key in sorted(only_there)}
    useless = [key for key, since in gone.items() if since <= oldest]
    await _delete_objects(target, useless)
    done.deleted = len(useless)
    left = {key: since for key, since in gone.items() if since > oldest}
    await target.put(GONE, json.dumps(left, separators=(",", ":")).encode())


@asynccontextmanager
async def _temporary() -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="protoslice-")
    try:
        yield Path(folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _put_file(target: Storage, key: ObjectKey, path: Path) -> None:
    with open(path, "rb") as file:
        async with await target.writer(key) as writer:
            while piece := await asyncio.to_thread(file.read, _SMALL):
                await writer.write(piece)
            await writer.commit()


async def _get_file(source: Storage, key: ObjectKey, path: Path) -> None:
    with open(path, "wb") as file:
        async with aclosing(source.stream(key)) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(file.write, piece)


async def _delete_objects(storage: Storage, keys: Sequence[str]) -> None:
    async def delete(key: str) -> None:
        await storage.delete(sums_of(ObjectKey(key)))
        await storage.delete(ObjectKey(key))

    for start in range(0, len(keys), _BATCH):
        await map_concurrently(delete, keys[start : start + _BATCH])

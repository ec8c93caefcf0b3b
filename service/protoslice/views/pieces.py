"""Tables of the pieces in a store's files, which are made on demand, and the search for pieces in all stores."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Final, TypeVar

from protoslice import _core
from protoslice.catalog.paging import PageBudget, ResultPage, first_item, item_bytes
from protoslice.catalog.stores import StoreTable
from protoslice.concurrency.gather import both, map_concurrently
from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.facts import Piece, PiecePlace
from protoslice.pieces import LEAST, PieceCutter, regions
from protoslice.serving.finding import LEAST_FOUND, FilesByDigest
from protoslice.serving.opened import OpenStore
from protoslice.storage.interface import Buffer
from protoslice.versions import PIECES

_log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_FILES: Final = 64
"""Largest number of digests of one request that are looked up as digests of whole files.

The largest sizes come first.
"""
MOST_STORES: Final = 16
"""Largest number of stores whose tables are read for one request."""
ROW: Final = struct.Struct("<IQI32s")  # the number of the file, offset, length, sha-256
TABLE: Final = f"pieces-{PIECES}"
"""The name of the table among a store's derived facts."""
LEAST_SAMPLED: Final = LEAST
"""The smallest piece that can have an index entry, in bytes; a store may have very many smaller pieces."""
LEAST_INDEXED: Final = 8 << 20
"""The total size in bytes of pieces that can have entries, from which a store gets entries.

Clients do not compare smaller uploads.
"""
_FEWEST: Final = 8
"""The fewest index entries of a store. Of stores that share half of their pieces, one pair in 256 shares no entry."""
_MOST_SAMPLED: Final = 1024
_SAMPLED: Final = 64
"""The number of pieces per index entry of a larger store. It is small enough that small common parts are found."""
ASKED: Final = 64
"""Largest number of digests of one request that are looked up in the index."""
_REGIONS: Final = 256
"""Regions examined in one slice of work."""


class PieceTable:
    """The pieces of one store. Each piece takes 48 bytes."""

    def __init__(self, rows: bytes, files: Sequence[str]) -> None:
        if len(rows) % ROW.size:
            raise IntegrityError("the table of a store's reusable data is damaged")
        self._rows = rows
        self._files = files

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    def sampled(self) -> list[bytes]:
        """Return the digests of the pieces that get index entries."""
        return sampled((digest, size) for _, _, size, digest in ROW.iter_unpack(self._rows))

    def __iter__(self) -> Iterator[tuple[str, int, int, bytes]]:
        for number, offset, size, digest in ROW.iter_unpack(self._rows):
            yield self._files[number], offset, size, digest

    def page(self, limit: int, cursor: str | None) -> ResultPage[Piece]:
        """Return a page of the pieces, in order."""
        first = first_item(cursor)
        rows = ROW.iter_unpack(self._rows[first * ROW.size : (first + limit) * ROW.size])
        items, room = list[Piece](), PageBudget(limit)
        for number, offset, size, digest in rows:
            if not room.takes(item_bytes(self._files[number])):
                break
            items.append(Piece(self._files[number], offset, size, digest.hex()))
        last = first + len(items)
        return ResultPage(items, str(last) if items and last < len(self) else None)


def sampled(pieces: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Return the digests of a store's `pieces` (digest, size) that get index entries; a small store gets none.

    These are the lowest digests, and a search looks up the lowest digests first. Two stores with many common pieces
    therefore also share some entries.
    """
    sizes = {digest: size for digest, size in pieces if size >= LEAST_SAMPLED}
    if sum(sizes.values()) < LEAST_INDEXED:
        return []
    return nsmallest(min(_MOST_SAMPLED, max(_FEWEST, len(sizes) // _SAMPLED)), sizes)


async def table_of(opened: OpenStore) -> PieceTable:
    """Return the piece table of a store, either saved or computed from its files.

    The work stops when the last caller leaves, and the next caller resumes it.
    """

    async def made() -> tuple[bytes, int]:
        rows = await opened.derived.load(TABLE)
        if rows is None:
            rows = await _made(opened)
        return rows, len(rows)

    # A store that was removed and uploaded again has another row, and its table is saved again.
    rows = await opened.results.get((opened.row, "pieces"), made, cancellable=True)
    return PieceTable(rows, [file.path for file in opened.info.files])


async def is_known(opened: OpenStore) -> bool:
    """Return True if the piece table of a store has been computed and saved."""
    return await opened.derived.has(TABLE)


async def locate(wanted: Mapping[str, int], stores: Sequence[OpenStore]) -> list[PiecePlace]:
    """Return one place for each piece of `wanted` (digest to size) that is in `stores`."""
    left = {bytes.fromhex(sha256): size for sha256, size in wanted.items()}
    found: list[PiecePlace] = []
    for store in stores:
        if not left:
            break
        table = await table_of(store)
        found += await store.worker.run_long(lambda table=table, store=store: list(_found(table, store.info.id, left)))  # type: ignore[misc]
    return found


async def _made(opened: OpenStore) -> bytes:
    begun = (opened.row, "begun pieces")
    rows = bytearray(opened.results.find(begun) or b"")
    try:
        await _fill(rows, opened)
    except asyncio.CancelledError:
        opened.results.put(begun, bytes(rows), len(rows))
        raise
    opened.results.put(begun, b"", 0)
    table = bytes(rows)
    digests = await opened.worker.run_if_large(len(table), PieceTable(table, ()).sampled)
    await opened.derived.save(TABLE, table, pieces=digests)
    return table


async def _fill(rows: bytearray, opened: OpenStore) -> None:
    """Append the missing rows region by region; the last region may have been started before."""
    done = _reached(rows)
    async for batch in opened.worker.iterate(_batches(_regions(opened), _REGIONS)):
        for number, start, end in batch:
            if (number, start) >= done:
                await _cut(rows, opened, number, start, end)
            elif number == done[0] and end > done[1]:
                await _cut(rows, opened, number, done[1], end)


async def _cut(rows: bytearray, opened: OpenStore, number: int, start: int, end: int) -> None:
    """Append the rows of one region. The region is read once."""
    file = opened.info.files[number]
    if file.sha256 is not None and (start, end) == (0, file.size) and end <= _core.SHORTEST_PIECE:
        rows += ROW.pack(number, start, end, bytes.fromhex(file.sha256))
        return
    cutter = PieceCutter(start, end)
    async with aclosing(opened.file(file.path).pieces(start, end)) as read:
        async for data in read:
            rows += await opened.worker.run_long(lambda data=data: _rows_of(cutter, data, number))  # type: ignore[misc]


def _rows_of(cutter: PieceCutter, data: Buffer, number: int) -> bytes:
    """Return the rows of the pieces that end in `data`, which are the next bytes of file `number`."""
    rows, left = bytearray(), memoryview(data)
    while left:
        left = cutter.take(left)
        while cutter.is_due:
            offset, piece = cutter.cut()
            rows += ROW.pack(number, offset, len(piece), hashlib.sha256(piece).digest())
    return bytes(rows)


def _reached(rows: bytearray) -> tuple[int, int]:
    """Return the file number and the offset up to which rows exist."""
    if not rows:
        return 0, 0
    number, offset, size, _ = ROW.unpack(rows[-ROW.size :])
    return number, offset + size


def _regions(store: OpenStore) -> Iterator[tuple[int, int, int]]:
    """Yield the regions of all files as file number, start and end."""
    for number, file in enumerate(store.info.files):
        extents = store.extents() if file.path == store.info.root else ()
        yield from ((number, start, end) for start, end in regions(file.size, extents))


def _batches(each: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(each, size)):
        yield batch


def _found(table: PieceTable, store_id: str, left: dict[bytes, int]) -> Iterator[PiecePlace]:
    """Yield places of pieces in `left`, and remove these pieces from `left`."""
    for file, offset, size, digest in table:
        if left.get(digest) == size:
            del left[digest]
            yield PiecePlace(digest.hex(), size, store_id, file, offset)


class PieceSearch:
    """A search for pieces in the stores of one space; it reveals no more than the lists of stores and pieces do."""

    def __init__(self, files: FilesByDigest, table: StoreTable, view: Callable[[str], Awaitable[OpenStore]]) -> None:
        """Set up the search; `view` opens a store by its id."""
        self._files = files
        self._table = table
        self._view = view

    async def places(self, wanted: Mapping[str, int], bases: Sequence[str] = ()) -> Sequence[PiecePlace]:
        """Return a place for each piece of `wanted` (digest to size) that is found.

        The search covers the stores `bases`, and all stores whose table has been computed.
        """
        found, left = list[PiecePlace](), dict(wanted)

        def take(places: Sequence[PiecePlace]) -> None:
            found.extend(places)
            for place in places:
                del left[place.sha256]

        for base in bases:
            take(await self._in(base, left))
        whole, sharing = await both(lambda: self._whole_files(left), lambda: self._sharing(left))
        take(whole)
        for _ in range(MOST_STORES):
            # Next comes the store with the most digests still wanted; among equals, the newest store.
            best = max(sharing, key=lambda row: (len(sharing[row][1] & left.keys()), row), default=None)
            if best is None:
                break
            store, pieces = sharing.pop(best)
            if pieces.isdisjoint(left):
                break
            take(await self._in(store, left))
        return found

    async def _sharing(self, wanted: Mapping[str, int]) -> dict[int, tuple[str, set[str]]]:
        """Return the stores that may have pieces of `wanted`, by row: each store's id, and the digests found in it."""
        digests = [bytes.fromhex(digest) for digest in nsmallest(ASKED, wanted)]
        found: dict[int, tuple[str, set[str]]] = {}
        for row, store, piece in await self._table.with_pieces(digests):
            found.setdefault(row, (store, set()))[1].add(piece.hex())
        return found

    async def _whole_files(self, wanted: Mapping[str, int]) -> list[PiecePlace]:
        large = ((size, sha256) for sha256, size in wanted.items() if size >= LEAST_FOUND)
        found = await map_concurrently(lambda each: self._files.place(each[1], each[0]), nlargest(MOST_FILES, large))
        return [place for place in found if place is not None]

    async def _in(self, store_id: str, wanted: Mapping[str, int]) -> Sequence[PiecePlace]:
        """Return places in a store, or no places if the store is damaged or removed."""
        try:
            return await locate(wanted, [await self._view(store_id)])
        except NotFound:
            pass
        except ProtosliceError:
            _log.exception("skipping store %s in the search for data to reuse", store_id)
        return ()

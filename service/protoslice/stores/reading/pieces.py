"""Tables of the pieces of stores' files with their SHA-256, computed on demand and kept among derived facts.

A sample of the pieces of a store is indexed, those of the lowest digests: two stores that have much in common have such
pieces in common too, and a search begins with the lowest digests that are asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from heapq import nsmallest
from itertools import islice
from typing import Final, TypeVar

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.errors import IntegrityError
from protoslice.facts import Piece, PiecePlace
from protoslice.identity import PIECES
from protoslice.pieces import LEAST, PieceCutter, regions
from protoslice.storage.interface import Buffer
from protoslice.stores.derived_facts import DerivedSources
from protoslice.stores.paging import PageBudget, ResultPage, first_item
from protoslice.stores.reading.opened import OpenStore

T = TypeVar("T")

_REGIONS: Final = 256
"""Regions told in one slice of work."""
_MOST_BEGUN: Final = 16


ROW: Final = struct.Struct("<IQI32s")  # the number of the file, offset, length, sha-256
TABLE: Final = f"pieces-{PIECES}"
"""Name of the table among the derived facts of a store."""
_WEIGHT: Final = 140
"""Bytes of JSON per piece beside the path of its file, about."""
LEAST_SAMPLED: Final = LEAST
"""Bytes of the smallest piece that has an entry; there are smaller ones in any number."""
LEAST_INDEXED: Final = 8 << 20
"""Bytes of such pieces below which a store has no entries: clients send files of less as they are."""
_FEWEST_SAMPLED: Final = 8
"""Entries of a store of few pieces; of two that share half of theirs, one pair in 256 is missed."""
_MOST_SAMPLED: Final = 1024
_SAMPLED: Final = 64
"""Pieces of a larger store to an entry, so that a file is found in a store that holds much more."""
ASKED: Final = 64
"""Digests of one request that are looked up."""


class PieceTable:
    """Pieces of one store, in 48 bytes each."""

    def __init__(self, rows: bytes, files: Sequence[str]) -> None:
        if len(rows) % ROW.size:
            raise IntegrityError("the table of a store's reusable data is damaged")
        self._rows = rows
        self._files = files

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    def sampled(self) -> list[bytes]:
        """Digests of the pieces that have entries in the index of pieces."""
        return sampled((digest, size) for _, _, size, digest in ROW.iter_unpack(self._rows))

    def __iter__(self) -> Iterator[tuple[str, int, int, bytes]]:
        for number, offset, size, digest in ROW.iter_unpack(self._rows):
            yield self._files[number], offset, size, digest

    def page(self, limit: int, cursor: str | None) -> ResultPage[Piece]:
        """A page of the pieces, in order."""
        first = first_item(cursor)
        rows = ROW.iter_unpack(self._rows[first * ROW.size : (first + limit) * ROW.size])
        items, room = list[Piece](), PageBudget(limit)
        for number, offset, size, digest in rows:
            if not room.takes(_WEIGHT + len(self._files[number])):
                break
            items.append(Piece(self._files[number], offset, size, digest.hex()))
        last = first + len(items)
        return ResultPage(items, str(last) if items and last < len(self) else None)


class Pieces:
    """Piece tables of all stores."""

    def __init__(self, derived: DerivedSources, results: Results, worker: Worker) -> None:
        self._derived = derived
        self._worker = worker
        self._results = results
        self._begun: dict[int, bytearray] = {}
        """First rows of tables whose calculation was cancelled, by store."""

    async def of(self, store: OpenStore) -> PieceTable:
        """The table of a store, loaded or computed by reading its files.

        The work stops when no caller waits any more.
        """
        # A store that was removed and sent again has another row, for which the table is saved again.
        key = (store.manifest.row, "pieces")
        rows = await self._results.get(key, lambda: self._load(store), cancellable=True)
        return PieceTable(rows, [file.path for file in store.info.files])

    async def known(self, store: OpenStore) -> bool:
        """True when the table of a store has been computed and saved."""
        return await self._derived.of(store.manifest.row).has(TABLE)

    async def locate(self, wanted: Mapping[str, int], stores: Sequence[OpenStore]) -> list[PiecePlace]:
        """One place for each piece of `wanted` (digest to size) that lies in `stores`."""
        left = {bytes.fromhex(sha256): size for sha256, size in wanted.items()}
        found: list[PiecePlace] = []
        for store in stores:
            if not left:
                break
            table = await self.of(store)
            found += await self._worker.bulk(lambda table=table, store=store: list(_found(table, store.info.id, left)))  # type: ignore[misc]
        return found

    async def _load(self, store: OpenStore) -> tuple[bytes, int]:
        rows = await self._derived.of(store.manifest.row).load(TABLE)
        if rows is None:
            rows = await self._make(store)
        return rows, len(rows)

    async def _make(self, store: OpenStore) -> bytes:
        rows = self._begun.pop(store.manifest.row, bytearray())
        try:
            await self._fill(rows, store)
        except asyncio.CancelledError:
            self._begun[store.manifest.row] = rows  # the next caller resumes here
            while len(self._begun) > _MOST_BEGUN:
                self._begun.pop(next(iter(self._begun)))
            raise
        await self._save(store, bytes(rows))
        return bytes(rows)

    async def _save(self, store: OpenStore, rows: bytes) -> None:
        """Save a table, and let the store be found by a sample of it; errors are ignored."""
        digests = await self._worker.sized(len(rows), PieceTable(rows, ()).sampled)
        await self._derived.of(store.manifest.row).save(TABLE, rows, pieces=digests)

    async def _fill(self, rows: bytearray, store: OpenStore) -> None:
        """Append the missing rows, one by one; the last region that has some goes on where they end."""
        done = _reached(rows)
        async for batch in self._worker.steps(_batches(_regions(store), _REGIONS)):
            for number, start, end in batch:
                if (number, start) >= done:
                    await self._cut(rows, store, number, start, end)
                elif number == done[0] and end > done[1]:
                    await self._cut(rows, store, number, done[1], end)

    async def _cut(self, rows: bytearray, store: OpenStore, number: int, start: int, end: int) -> None:
        """Append the rows of one region, which is read once."""
        file = store.info.files[number]
        if file.sha256 is not None and (start, end) == (0, file.size) and end <= _core.SHORTEST_PIECE:
            rows += ROW.pack(number, start, end, bytes.fromhex(file.sha256))
            return
        cutter = PieceCutter(start, end)
        async with aclosing(store.file(file.path).pieces(start, end)) as read:
            async for data in read:
                rows += await self._worker.bulk(lambda data=data: _rows_of(cutter, data, number))  # type: ignore[misc]


def _rows_of(cutter: PieceCutter, data: Buffer, number: int) -> bytes:
    """Rows of the pieces that end in `data`, the next bytes of file `number`."""
    rows, left = bytearray(), memoryview(data)
    while left:
        left = cutter.take(left)
        while cutter.is_due:
            offset, piece = cutter.cut()
            rows += ROW.pack(number, offset, len(piece), hashlib.sha256(piece).digest())
    return bytes(rows)


def _reached(rows: bytearray) -> tuple[int, int]:
    """Number of the file, and offset in it, up to which there are rows."""
    if not rows:
        return 0, 0
    number, offset, size, _ = ROW.unpack(rows[-ROW.size :])
    return number, offset + size


def _regions(store: OpenStore) -> Iterator[tuple[int, int, int]]:
    """The regions of all files, as number of the file, start and end."""
    for number, file in enumerate(store.info.files):
        extents = store.extents() if file.path == store.info.root else ()
        yield from ((number, start, end) for start, end in regions(file.size, extents))


def _batches(each: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(each, size)):
        yield batch


def _found(table: PieceTable, store_id: str, left: dict[bytes, int]) -> Iterator[PiecePlace]:
    """Places of pieces in `left`, which are removed from `left`."""
    for file, offset, size, digest in table:
        if left.get(digest) == size:
            del left[digest]
            yield PiecePlace(digest.hex(), size, store_id, file, offset)


def sampled(pieces: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Digests of a store's `pieces` (digest, size) that are to have an entry; none for a small store."""
    sizes = {digest: size for digest, size in pieces if size >= LEAST_SAMPLED}
    if sum(sizes.values()) < LEAST_INDEXED:
        return []
    return nsmallest(min(_MOST_SAMPLED, max(_FEWEST_SAMPLED, len(sizes) // _SAMPLED)), sizes)

"""Benchmark of only the catalogue: a collection with a million stores, and clients that publish at once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from bench.timing import Row
from tests.support.postgres import running_postgres

from protoslice.catalog.objects import new_id
from protoslice.catalog.spaces import Account
from protoslice.catalog.stores import StoreDraft, StoreTable
from protoslice.database import Database, Transaction, upgrade
from protoslice.database.postgres import PostgresDatabase
from protoslice.database.sqlite import SqliteDatabase
from protoslice.storage import MemoryStorage
from protoslice.stores.collection import collect_garbage

_STORES: Final = 1_000_000
_BATCH: Final = 20_000
_CLIENTS: Final = 32
_PUTS: Final = 200
"""Stores that each client publishes."""
_COMMIT_MICROSECONDS: Final = 5_000
_SPACE: Final = "bench"
_NUMBERS: Final = (
    "WITH RECURSIVE n (i) AS (SELECT CAST(:first AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
)
_SEEDS: Final = (
    "INSERT INTO objects (space, id, key, size) {numbers} SELECT 'bench', i, 'objects/00/' || i, 100000 FROM n",
    """INSERT INTO stores (space, id, digest, type, size, held, created, weight, manifest) {numbers}
       SELECT 'bench', i, 'digest-' || i, 'bench.Model', 100000, 0, i, 300, {manifest} FROM n""",
    "INSERT INTO store_objects (space, store, object) {numbers} SELECT 'bench', i, i FROM n",
)


def catalogue(folder: Path, scale: float) -> Iterator[Row]:
    """Measure collections on both engines, and publishing on PostgreSQL."""
    count = max(1, int(_STORES * scale))
    yield asyncio.run(_collection("SQLite", SqliteDatabase(folder / "many.sqlite"), "zeroblob(200)", count))
    with running_postgres() as server:
        database = PostgresDatabase(server.new_database())
        yield asyncio.run(_collection("PostgreSQL", database, "decode(repeat('00', 200), 'hex')", count))
        server.stop("fast")
        server.start("fsync=on", f"commit_delay={_COMMIT_MICROSECONDS}", "commit_siblings=0")
        yield asyncio.run(_publishing(PostgresDatabase(server.new_database())))


async def _collection(name: str, database: Database, manifest: str, count: int) -> Row:
    """Seconds of a collection with nothing to do."""
    try:
        await upgrade(database)
        for sql in _SEEDS:
            statement = sql.format(numbers=_NUMBERS, manifest=manifest)
            for first in range(1, count + 1, _BATCH):
                await database.write(partial(_run, statement, first, min(first + _BATCH - 1, count)))
        storage = MemoryStorage()
        await collect_garbage(storage, database)
        seconds = []
        for _ in range(5):
            begun = time.perf_counter()
            report = await collect_garbage(storage, database)
            seconds.append(time.perf_counter() - begun)
            assert not report.objects
        middle = sorted(seconds)[2]
        what = f"{name}, collection with nothing to do, {count} stores: seconds"
        return Row(what, f"{middle * 1e3:.1f} ms", f"up to {max(seconds) * 1e3:.1f} ms", middle, 1, False)
    finally:
        await database.close()


def _run(sql: str, first: int, last: int, tx: Transaction) -> None:
    tx.run(sql, first=first, last=last)


async def _publishing(database: Database) -> Row:
    """Small stores with a tag that clients publish at once in one space, per second."""
    table = StoreTable(database, Account(_SPACE))

    async def client(number: int) -> None:
        for each in range(_PUTS):
            digest = f"{number}-{each}-{secrets.token_hex(8)}"
            draft = StoreDraft(
                id=new_id(), digest=digest, type="bench.Model", size=1000, held=1000, created=each, weight=300,
                manifest=bytes(1300),
            )  # fmt: skip
            await table.publish(draft, [f"model:{number}"])

    try:
        await upgrade(database)
        await table.publish(_first(), [])
        single = time.perf_counter()
        await table.publish(_first(), [])
        single = time.perf_counter() - single
        begun = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(_CLIENTS)))
        rate = _CLIENTS * _PUTS / (time.perf_counter() - begun)
        what = f"PostgreSQL with commits of 5 ms, {_CLIENTS} clients, one space: stores a second"
        return Row(what, f"{rate:.0f}", f"one publication takes {single * 1e3:.1f} ms", rate, 1000)
    finally:
        await database.close()


def _first() -> StoreDraft:
    return StoreDraft(id=new_id(), digest=secrets.token_hex(32), type=None, size=1, created=0, weight=1, manifest=b"{}")

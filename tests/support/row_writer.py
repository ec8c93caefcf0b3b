"""A process that writes to a catalogue until it is killed, and says what was acknowledged.

Run as `python -m tests.support.row_writer FILE SEED`.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.support.rows import ACCOUNT, SPACE, own, put_store, reserved

from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.objects import ObjectTable
from protoslice.catalog.stores import StoreTable
from protoslice.database.sqlite import SqliteDatabase
from protoslice.errors import Conflict, DatabaseUnavailable


async def _work(database: SqliteDatabase, name: str, random: Random) -> None:
    """Publish, tag, remove and collect for ever."""
    table, number = StoreTable(database, ACCOUNT), 0
    while True:
        number += 1
        store = f"{name}-{number}"
        with suppress(DatabaseUnavailable, Conflict):
            objects = await reserved(database, 3)
            await put_store(database, store, own=own(objects[:2]), tags=[store])
            print("added", store, flush=True)
            if random.random() < 0.3:
                print("removing", store, flush=True)
                await table.remove(store)
                print("removed", store, flush=True)
            await ObjectTable(database).drop(SPACE, objects[2:])
            if random.random() < 0.1:
                await CollectorTable(database).purge_stores(-1)
                await CollectorTable(database).drop_objects(0)


async def main(file: Path, seed: str) -> None:
    """Work in several tasks at once."""
    database = SqliteDatabase(file)
    await asyncio.gather(*(_work(database, f"{seed}-{n}", Random(f"{seed} {n}")) for n in range(4)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

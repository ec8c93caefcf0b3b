"""Two processes that write to one SQLite file are killed over and over: no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest

from protoslice.database import upgrade
from protoslice.database.sqlite import SqliteDatabase

ROOT: Final = Path(__file__).parents[2]
KILLS: Final = int(os.environ.get("PROTOSLICE_KILLS", "8"))

_DANGLING: Final = """
    SELECT 'object', object FROM store_objects WHERE (space, object) NOT IN (SELECT space, id FROM objects) UNION ALL
    SELECT 'store', store FROM store_objects WHERE (space, store) NOT IN (SELECT space, id FROM stores) UNION ALL
    SELECT 'tag', name FROM names WHERE store NOT IN (SELECT digest FROM stores WHERE deleted IS NULL)"""
_USAGE: Final = """
    SELECT (SELECT sum(stored_bytes) FROM usage) - (SELECT coalesce(sum(size), 0) FROM objects),
        (SELECT sum(stores) FROM usage) - (SELECT count(*) FROM stores WHERE deleted IS NULL)"""


class Writer:
    """A process that writes, and what it said in all its lives."""

    def __init__(self, file: Path, number: int) -> None:
        self._file = file
        self._number = number
        self._lives = 0
        self.lines: list[str] = []
        self._start()

    def _start(self) -> None:
        self._lives += 1
        command = [sys.executable, "-m", "tests.support.row_writer", str(self._file), f"{self._number}-{self._lives}"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def kill(self, *, again: bool) -> None:
        """End the process as `kill -9` does; start another one with `again`."""
        self._process.send_signal(signal.SIGKILL)
        said, _ = self._process.communicate()
        self.lines += said[: said.rfind("\n") + 1].splitlines()
        if again:
            self._start()


@pytest.mark.long
def test_killed_writers_lose_no_acknowledged_write(tmp_path: Path) -> None:
    file, random = tmp_path / "catalog.sqlite", Random(1)

    async def prepare() -> None:
        database = SqliteDatabase(file)
        await upgrade(database)
        await database.close()

    asyncio.run(prepare())
    writers = [Writer(file, number) for number in range(2)]
    try:
        for _ in range(KILLS):
            time.sleep(random.uniform(0.8, 2.0))
            random.choice(writers).kill(again=True)
    finally:
        for writer in writers:
            writer.kill(again=False)
    said = {line for writer in writers for line in writer.lines}
    of = {
        word: {line.split()[1] for line in said if line.startswith(f"{word} ")}
        for word in ("added", "removing", "removed")
    }
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        live = {digest for (digest,) in connection.execute("SELECT digest FROM stores WHERE deleted IS NULL")}
        assert connection.execute(_DANGLING).fetchall() == []
        assert connection.execute(_USAGE).fetchone() == (0, 0)
    assert len(of["added"]) > 20 * KILLS
    assert of["added"] - of["removing"] <= live
    assert not of["removed"] & live

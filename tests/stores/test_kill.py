"""Tests with kill -9 at any moment: acknowledged stores are there and whole, none is there in part.

`PROTOSLICE_KILLS=200` makes it the long version (`make soak`).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.support.catalogues import shared_catalogue
from tests.support.store_writer import content
from tests.support.stores import assert_tidy, assert_whole, opened, visible

from protoslice.database import Database
from protoslice.database.transactions import Transaction
from protoslice.storage import FileStorage
from protoslice.stores.collection import collect_garbage

KILLS = int(os.environ.get("PROTOSLICE_KILLS", "25"))


def killed(writers: subprocess.Popen[str], seed: int, seconds: float) -> list[str]:
    """Lines of a writer that is killed so many seconds after it began."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{seed}\n")
    writers.stdin.flush()
    mark, pid = writers.stdout.readline().split()
    assert mark == "!"
    time.sleep(seconds)
    os.kill(int(pid), signal.SIGKILL)
    said = []
    while not (line := writers.stdout.readline()).endswith("!\n"):  # perhaps behind half a line
        said.append(line)
    return said


class Expected:
    """Stores that must, may, and must not be there."""

    def __init__(self) -> None:
        self.there: dict[str, int] = {}
        self.unsure: dict[str, int] = {}
        self.gone: set[str] = set()

    def hear(self, said: list[str]) -> None:
        for line in said:
            mark, seed, store_id = line.split()
            self.there.pop(store_id, None)
            self.unsure.pop(store_id, None)
            if mark == "-":
                self.gone.add(store_id)
            else:
                {"+": self.there, "?": self.unsure}[mark][store_id] = int(seed)


async def pass_time(database: Database) -> None:
    """Let unpublished objects expire and delays pass."""

    def work(tx: Transaction) -> None:
        tx.run("UPDATE objects SET unpublished = 0 WHERE unpublished IS NOT NULL")
        tx.run("UPDATE trash SET due = 0")

    await database.write(work)


async def look(folder: Path, expected: Expected, whole: set[str], *, last: bool) -> None:
    """Judge what a new process finds."""
    async with (
        shared_catalogue(Path(f"{folder}.sqlite")) as database,
        FileStorage(str(folder)) as storage,
        opened(storage, database=database) as stores,
    ):
        found = await visible(stores)
        assert expected.there.keys() <= found.keys(), "an acknowledged store is lost"
        assert not expected.gone & found.keys(), "a store whose deletion was acknowledged is there"
        for store_id, info in found.items():
            if store_id in whole and not last:
                continue  # read when new, and read again in the end
            views = await assert_whole(stores, info)
            seed = expected.there.get(store_id, expected.unsure.get(store_id))
            if seed is not None:
                assert {path: views[f"file {path}"] for path in content(seed)} == content(seed)
            if store_id in expected.there:
                assert info.tags == (f"seed-{seed}",)
            whole.add(store_id)
        for _ in range(3):
            await pass_time(database)
            await collect_garbage(storage, database, grace_seconds=0, delay_seconds=0)
        await assert_tidy(storage, database)
        if last:
            for info in found.values():
                await assert_whole(stores, info)
            await storage.collect_garbage(0)  # there are no writers now
            assert not list((folder / ".protoslice" / "tmp").iterdir())


def test_kills(tmp_path: Path) -> None:
    expected, whole, random = Expected(), set[str](), Random(KILLS)
    command = [sys.executable, "-m", "tests.support.store_writer", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        for seed in range(KILLS):
            expected.hear(killed(writers, seed, random.uniform(0, 0.2)))
            asyncio.run(look(tmp_path, expected, whole, last=seed == KILLS - 1))
    print(f"{KILLS} kills: {len(expected.there)} stores there, {len(expected.gone)} removed")
    # The number of stores before the kill depends on the disk; none at all would prove nothing.
    assert len(expected.there) + len(expected.gone) > 0, "the writers never came to write"

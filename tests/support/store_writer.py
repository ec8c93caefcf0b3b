"""Processes to be killed: each takes stores in without end, and prints what has been acknowledged.

`python -m tests.support.store_writer DIRECTORY` makes one for every seed it reads, says `! PID` when that is
ready, and `!` when it is dead. A fork of a process that has everything imported is there at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random

from tests.support.catalogues import shared_catalogue
from tests.support.stores import onnx, upload

from protoslice.storage import FileStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.collection import collect_garbage


def content(seed: int) -> dict[str, bytes]:
    """The files of the upload with this seed."""
    files = {"model.onnx": onnx(*Random(seed).choices([10, 3000, 20_000, 70_000], k=3), seed=seed)}
    return files | {f"more-{n}": b"%d" % n for n in range(seed % 3)}


async def _work(stores: Stores, random: Random) -> None:
    while True:
        seed = random.randrange(1 << 40)
        created = await upload(stores, content(seed), IngestRequest(min_chunk=2000, tags=(f"seed-{seed}",)), piece=9000)
        print(f"+ {seed} {created.store.id}", flush=True)
        if seed % 3 == 0:
            print(f"? {seed} {created.store.id}", flush=True)
            await stores.delete(created.store.id)
            print(f"- {seed} {created.store.id}", flush=True)
        if seed % 10 == 0:
            await collect_garbage(stores.storage, stores.database)


async def _main(directory: str, seed: int) -> None:
    async with shared_catalogue(Path(f"{directory}.sqlite")) as database:
        stores = await Stores.open(FileStorage(directory), database)
        print(f"! {os.getpid()}", flush=True)
        await asyncio.gather(*(_work(stores, Random(f"{seed} {n}")) for n in range(3)))


def _serve(directory: str) -> None:
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            asyncio.run(_main(directory, int(line)))
        os.waitpid(pid, 0)
        print("!", flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])

"""Worker processes that read through objects of their parent process: `python -m tests.client.workers`.

With each way to start a process, the workers must get separate connections and files.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import sys
from collections.abc import Callable, Mapping
from typing import Any

import protoslice
from protoslice.client import AsyncClient, Client

READS: Mapping[str, Callable[[Any], bytes]] = {
    "Client": lambda client: client.metadata("workers") + client.merge("workers"),
    "AsyncClient": lambda client: asyncio.run(_merged(client)),
    "source": lambda source: b"".join(source.read(at, 100) for at in range(0, 20_000, 100)),
    "remote records": lambda records: b"".join(records[number] for number in range(300)),
    "slice of remote records": lambda records: b"".join(records),
    "local records": lambda records: b"".join(records[number] for number in range(300)),
    "slice of local records": lambda records: b"".join(records),
    "shards": lambda records: b"".join(records),
}
"""The reads through each object, which both processes do."""


async def _merged(client: AsyncClient) -> bytes:
    """Make more calls than the client has threads."""
    return b"".join(await asyncio.gather(*(client.merge("workers", "node[0].name") for _ in range(20))))


def digests(objects: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of the bytes that are read through each object."""
    return {name: hashlib.sha256(READS[name](each)).hexdigest() for name, each in objects.items()}


def work(objects: Mapping[str, Any], results: Any) -> None:
    """Read through all objects, in a worker."""
    try:
        results.put(digests(objects))
    except BaseException as error:
        results.put(repr(error))


def main(method: str, url: str, path: str, shards: str) -> None:
    """Read by two workers, and before and in parallel by this process, which leaves idle connections."""
    client = Client(url, attempts=1)  # a mix-up of connections must not be repaired
    remote, local = client.records("records"), protoslice.records(path)
    objects = {
        "Client": client,
        "AsyncClient": AsyncClient(url, attempts=1),
        "source": client.source("workers", "files/model.pb"),
        "remote records": remote,
        "slice of remote records": remote[100:500:3],
        "local records": local,
        "slice of local records": local[100:500:3],
        "shards": protoslice.records(shards),
    }
    due = digests(objects)
    context = multiprocessing.get_context(method)
    results = context.Queue()
    workers: list[Any] = [context.Process(target=work, args=(objects, results)) for _ in range(2)]  # type: ignore[attr-defined]
    for worker in workers:
        worker.start()
    found = [digests(objects), *(results.get(timeout=60) for _ in workers)]
    assert found == [due] * 3, (due, found)


if __name__ == "__main__":
    main(*sys.argv[1:])

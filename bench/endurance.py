"""Benchmark of a service's memory with 100 000 stores, one tag each, under many kinds of calls.

The storage is a bucket of Versity's gateway (`tools/programs.sh`), so caches, connections and threads are a bucket's.
The calls of a day are sent as fast as the service answers. The first third of them is enough to fill all caches.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from bench.bucket import gateway_program
from bench.timing import Row
from tests.support.buckets import BUCKET, Gateway, options_of
from tests.support.catalogues import shared_catalogue
from tests.support.rows import seed, seeded_id
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import onnx, opened, upload

from protoslice.storage import MemoryStorage

STORES: Final = 100_000
CALLS: Final = 60_000
CLIENTS: Final = 4
_SAMPLES: Final = 180
_MODEL: Final = onnx(600, 600)

Call = tuple[str, str, bytes]
"""A call: its method, path and body."""

_VIEWS: Final = (
    "", "/tree", "/treemap", "/summary", "/merge", "/chunks", "/chunks/0", "/metadata", "/cpb", "/files/model.onnx",
    "/archive.tar", "/tensors", "/tensors/weight-0", "/safetensors", "/references.json", "/pieces",
)  # fmt: skip


class _Day:
    """A random sequence of a day's calls: reads, lists, changes, uploads, removals, and errors."""

    def __init__(self, stores: int, seed: int) -> None:
        self._random = Random(seed)
        self._stores = stores
        self._new = (f"{seed}-{number}" for number in count())
        self._kinds: tuple[Callable[[], Call], ...] = (
            *(partial(self._view, view) for view in _VIEWS for _ in range(2)),
            *(self._list, self._by_tag, self._by_type, self._tags, self._tags_of, self._missing),
            *(self._upload, self._upload, self._move, self._untag, self._remove, self._unknown, self._watch),
        )

    def call(self) -> Call:
        """Return the next call."""
        return self._random.choice(self._kinds)()

    def _store(self) -> str:
        return seeded_id(self._random.randrange(self._stores))

    def _tag(self) -> str:
        return f"t{self._random.randrange(self._stores)}"

    def _view(self, view: str) -> Call:
        ref = self._random.choice((self._store, self._tag))()
        return "GET", f"/v1/stores/{ref}{view}", b""

    def _list(self) -> Call:
        return "GET", "/v1/stores?limit=50", b""

    def _by_tag(self) -> Call:
        return "GET", f"/v1/stores?limit=50&tag={self._tag()[:4]}", b""

    def _by_type(self) -> Call:
        return "GET", "/v1/stores?limit=20&type=onnx.ModelProto", b""

    def _tags(self) -> Call:
        return "GET", "/v1/tags?limit=200", b""

    def _tags_of(self) -> Call:
        return "GET", f"/v1/tags?store={self._store()}", b""

    def _missing(self) -> Call:
        wanted = [{"sha256": self._random.randbytes(32).hex(), "size": 70_000} for _ in range(50)]
        return "POST", "/v1/chunks/missing", json.dumps({"chunks": wanted}).encode()

    def _upload(self) -> Call:
        body = onnx(600, seed=self._random.getrandbits(60))
        return "PUT", f"/v1/stores?filename=model.onnx&tag=new-{next(self._new)}", body

    def _move(self) -> Call:
        return "PUT", f"/v1/tags/{self._tag()}", json.dumps({"store": self._store()}).encode()

    def _untag(self) -> Call:
        return "DELETE", f"/v1/tags/{self._tag()}", b""

    def _remove(self) -> Call:
        return "DELETE", f"/v1/stores/{self._store()}", b""

    def _unknown(self) -> Call:
        return "GET", f"/v1/stores/{self._random.randbytes(32).hex()}/tree", b""

    def _watch(self) -> Call:
        return "GET", self._random.choice(("/metrics", "/readyz", "/v1/stores/nothing", "/nowhere")), b""


def endurance(folder: Path, scale: float) -> Iterator[Row]:
    """Measure the service's memory in each third of a long day."""
    stores, calls = int(STORES * scale), int(CALLS * scale)
    with ExitStack() as stack:
        server = Gateway(str(gateway_program()), folder)
        asyncio.run(_seed(folder / "catalog.sqlite", stores))
        server.start()
        stack.callback(server.end)
        settings = {
            "PROTOSLICE_STORAGE": f"s3://{BUCKET}/stores",
            "PROTOSLICE_DATABASE": f"sqlite:///{folder}/catalog.sqlite",
            "PROTOSLICE_STORAGE_OPTIONS": json.dumps(options_of(server.endpoint) | {"allow_http": "true"}),
            "PROTOSLICE_LOG_LEVEL": "error",
        }
        service = stack.enter_context(service_process(settings=settings))
        samples = _samples(service, stores, calls)
    yield from _rows(samples, calls)


async def _seed(catalogue: Path, stores: int) -> None:
    async with opened(MemoryStorage()) as memory:
        made = await upload(memory, _MODEL)
        like = await memory.manifests.get(made.store.id)
    async with shared_catalogue(catalogue) as database:
        await seed(database, stores, like)


def _samples(service: ServiceProcess, stores: int, calls: int) -> list[float]:
    """Send all calls; return the service's resident memory in MiB, sampled at even intervals of calls."""
    done, lock = count(1), threading.Lock()
    samples: list[float] = []
    statuses: dict[int, int] = {}

    def ask(client: int) -> None:
        day = _Day(stores, client)
        with closing(HTTPConnection(service.server.host, service.server.port, timeout=120)) as connection:
            while True:
                method, path, body = day.call()
                connection.request(method, path, body, {"content-type": _type_of(method, path)})
                answer = connection.getresponse()
                answer.read()
                with lock:
                    number = next(done)
                    statuses[answer.status] = statuses.get(answer.status, 0) + 1
                    if number % max(1, calls // _SAMPLES) == 0:
                        samples.append(service.resident() / (1 << 20))
                    if number >= calls:
                        return

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = {status: number for status, number in statuses.items() if status >= 500}
    if failed or len(samples) < 6:
        raise SystemExit(f"the calls of a day failed: {statuses}")
    return samples


def _type_of(method: str, path: str) -> str:
    return "application/octet-stream" if method == "PUT" and "filename=" in path else "application/json"


def _rows(samples: list[float], calls: int) -> Iterator[Row]:
    thirds = [samples[len(samples) * part // 3 : len(samples) * (part + 1) // 3] for part in range(3)]
    first, second, last = map(statistics.fmean, thirds)
    told = f"{first:.1f}, {second:.1f}, {last:.1f} MiB"
    spread = f"{min(thirds[2]):.1f} to {max(thirds[2]):.1f}"
    yield Row(f"memory of a service in the thirds of {calls} calls, MiB more", told, spread, last - second, 2, False)

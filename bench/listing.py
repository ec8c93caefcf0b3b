"""Benchmark of S3 listings in a space of a million names, on either database. Each name is a store of ten files.

Each row is the 99th percentile for pages of 1 000 keys or common prefixes, all read over one connection.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlencode

from bench.timing import Row
from tests.support.postgres import running_postgres
from tests.support.rows import seed
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import opened

from protoslice.catalog.manifest import Manifest
from protoslice.database import Database, connect, upgrade
from protoslice.database.sqlite import SqliteDatabase
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest

NAMES: Final = 1_000_000
PAGES: Final = 200
"""The number of pages for each row; some pages before them do not count."""
_WARMING: Final = 10
_MILLISECONDS: Final = 75
_KEYS: Final = 1000
_DIGITS: Final = "aAbBzZ09+-._:"
_FILES: Final = ("config.json", "m.onnx", "vocab.txt", *(f"variables/part-{number}" for number in range(7)))
_SHAPES: Final = {
    "keys": ("", ""),
    "keys of a section": ("tags/", ""),
    "names, by delimiter /": ("tags/", "/"),
    "prefixes, by delimiter -": ("tags/", "-"),
}
"""The prefix and the delimiter of each listing."""


def name_of(number: int) -> str:
    """Return the name for a number. Many names begin with another name, followed by marks or letters of both cases."""
    digits = "m"
    while number:
        number, digit = divmod(number - 1, len(_DIGITS))
        digits += _DIGITS[digit]
    return digits


def listing(folder: Path, scale: float) -> Iterator[Row]:
    """Measure the service's time for a page over each database."""
    names, pages = int(NAMES * scale), max(20, int(PAGES * scale))
    with ExitStack() as stack:
        postgres = stack.enter_context(running_postgres())
        urls = {"SQLite": f"sqlite:///{folder}/catalog.sqlite", "PostgreSQL": postgres.new_database()}
        keys = sorted(f"tags/{name_of(number)}/" for number in range(names))
        for engine, url in urls.items():
            asyncio.run(_seed(url, names))
            settings = {"STORAGE": (folder / engine).as_uri(), "DATABASE": url, "LOG_LEVEL": "error"}
            with service_process(settings={f"PROTOSLICE_{name}": value for name, value in settings.items()}) as service:
                yield from _rows(service, engine, keys, pages)


async def _seed(url: str, names: int) -> None:
    path = url.removeprefix("sqlite://")  # the seeded file need not survive a crash
    database: Database = connect(url, "memory://") if path == url else SqliteDatabase(Path(path), durable=False)
    try:
        await upgrade(database)
        await seed(database, names, await _like(), tag=name_of)
    finally:
        await database.close()


async def _like() -> Manifest:
    """Return the manifest of a store of ten files."""
    async with opened(MemoryStorage()) as stores, await stores.ingest(IngestRequest()) as ingest:
        for path in _FILES:
            writer = await ingest.file(path)
            await writer.write(path.encode())
            await writer.close()
        return await stores.manifests.get((await ingest.commit()).store.id)


def _rows(service: ServiceProcess, engine: str, keys: Sequence[str], pages: int) -> Iterator[Row]:
    with closing(HTTPConnection(service.server.host, service.server.port, timeout=60)) as connection:
        for what, (prefix, delimiter) in _SHAPES.items():
            left = _KEYS if delimiter else _KEYS // len(_FILES)
            for place, (low, high) in {"first": (0, 0), "middle": (0.3, 0.7), "last": (1, 1)}.items():
                afters = [_after(keys, low, high, left, random) for random in map(Random, range(pages + _WARMING))]
                targets = [_target(prefix, delimiter, after) for after in afters]
                yield _row(service, connection, f"{engine}, {what}, {place} page", pages, targets)


def _after(keys: Sequence[str], low: float, high: float, left: int, random: Random) -> str:
    """Return a random start key from the given share of the keys; at least `left` names follow the key."""
    number = int(random.uniform(low, high) * len(keys))
    return "" if number == 0 else keys[max(0, min(number, len(keys) - left))]


def _target(prefix: str, delimiter: str, after: str) -> str:
    asked = {"list-type": "2", "prefix": prefix, "delimiter": delimiter, "start-after": after}
    return f"/s3/default?{urlencode({name: value for name, value in asked.items() if value})}"


def _row(service: ServiceProcess, connection: HTTPConnection, what: str, pages: int, targets: Sequence[str]) -> Row:
    times, found = list[float](), 0
    for target in targets[:_WARMING]:
        _read(connection, target)
    used = _processor_seconds(service)
    for target in targets[_WARMING:]:
        begun = time.perf_counter()
        body = _read(connection, target)
        times.append(time.perf_counter() - begun)
        found = max(found, body.count(b"<Contents>") + body.count(b"<CommonPrefixes>"))
    used = (_processor_seconds(service) - used) * 1000 / pages
    times.sort()
    last, median = times[int(pages * 0.99)] * 1000, times[pages // 2] * 1000
    seen = f"median {median:.1f} ms, {used:.1f} ms of processor; {found} items"
    return Row(f"{what}: p99, ms", f"{last:.1f} ms", seen, last, _MILLISECONDS, False)


def _read(connection: HTTPConnection, target: str) -> bytes:
    connection.request("GET", target)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"GET {target} failed: {answer.status} {body[:500]!r}")
    return body


def _processor_seconds(service: ServiceProcess) -> float:
    fields = Path(f"/proc/{service.running.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

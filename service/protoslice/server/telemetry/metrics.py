"""Metrics for Prometheus. One response has the metrics of all worker processes.

Each worker publishes its metrics on a socket in a shared directory.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.build import build
from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.new_objects import USABLE_SECONDS
from protoslice.catalog.objects import ObjectTable
from protoslice.catalog.spaces import Quotas, SpaceTable
from protoslice.database import Database
from protoslice.database.snapshots import last_snapshots
from protoslice.database.transactions import SECOND
from protoslice.errors import ProtosliceError
from protoslice.server.context import RequestContext
from protoslice.serving.cache import Counts
from protoslice.storage import Call
from protoslice.stores import Stores
from protoslice.stores.service import Spaces

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
"""The upper bounds of every histogram, in seconds."""
_UP_TO: Final = (*map(str, BOUNDS), "+Inf")
LAG_EVERY_SECONDS: Final = 0.5
TOTALS_EVERY_SECONDS: Final = 300.0
"""The seconds between two reads of the catalogue's totals."""
_TOTALS: Final = {
    "stores": "Stores of all spaces.",
    "tags": "Tags of all spaces.",
    "stored_bytes": "Stored bytes of all spaces; shared bytes count once.",
    "logical_bytes": "Size of all files of all stores.",
    "trash_objects": "Objects whose bytes are still to be deleted.",
    "trash_bytes": "Bytes that are still to be deleted.",
    "unpublished_objects": "Objects that were reserved over an hour ago, and that nothing refers to yet.",
    "last_backup_timestamp_seconds": "Unix time of the last backup; 0 if there is none.",
    "last_dump_timestamp_seconds": "Unix time of the last database dump in the storage; 0 if there is none.",
}

disable_created_metrics()  # type: ignore[no-untyped-call]


class _Reading(NamedTuple):
    """A metric that is read for each scrape.

    The metric has one number for each value of `label`, or a single number under the key "".
    """

    name: str
    about: str
    label: str | None
    read: Callable[[], Mapping[str, float]]
    family: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily


class _Readings(Collector):
    """A table of metrics that any thread can read for each scrape."""

    def __init__(self, *rows: _Reading) -> None:
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for row in self._rows:
            family = row.family(f"protoslice_{row.name}", row.about, labels=None if row.label is None else [row.label])
            for value, number in row.read().items():
                family.add_metric([] if row.label is None else [value], number)
            yield family


class _Requests(Collector):
    """The counts of requests by route, method and status. One thread counts, and any thread collects.

    Counters of the Prometheus library use locks, which cost a tenth of the time of a small response.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], list[float]] = {}
        """The numbers for each route, method and status.

        Each list begins with a count of requests per bound: the requests whose duration lies between the previous bound
        and this bound. The total seconds, bytes received and bytes sent follow.
        """

    def add(self, context: RequestContext, seconds: float) -> None:
        """Count one request."""
        key = (context.route, context.method, context.status)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = [0] * (len(_UP_TO) + 3)
        count[bisect_left(BOUNDS, seconds)] += 1
        count[-3] += seconds
        count[-2] += context.bytes_in
        count[-1] += context.bytes_out

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        labels = ("route", "method", "status")
        requests = CounterMetricFamily("protoslice_requests", "Requests answered.", labels=labels)
        times = HistogramMetricFamily(
            "protoslice_request_seconds", "Time from the request's headers to the end of the response.", labels=labels
        )
        received = CounterMetricFamily("protoslice_received_bytes", "Request body bytes received.", labels=labels)
        sent = CounterMetricFamily("protoslice_sent_bytes", "Response body bytes sent.", labels=labels)
        for (route, method, status), (*within, seconds, bytes_in, bytes_out) in sorted(self._counts.copy().items()):
            values, up_to = (route, method, str(status)), list(accumulate(within))
            requests.add_metric(values, up_to[-1])
            times.add_metric(values, list(zip(_UP_TO, up_to, strict=True)), seconds)
            received.add_metric(values, bytes_in)
            sent.add_metric(values, bytes_out)
        yield from (requests, times, received, sent)


class Metrics:
    """The metrics of one application. Labels are the route's template, method and status, so that there are few series.

    Metrics that are the same in every worker, such as facts of the database, are in the registry `shared`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.shared = CollectorRegistry()
        self.under_way = 0
        self.streams = 0
        self.free_bytes: float | None = None
        """The free bytes of the storage at the last scrape; None if unknown."""
        self.certificate_expires: Callable[[], float | None] = lambda: None
        self._stores: Stores | None = None
        self._spaces: Spaces | None = None
        self._database: Database | None = None
        self._totals: dict[str, float] = {}
        ProcessCollector(registry=self.registry)
        Info("protoslice_build", "Version of this build.", registry=self.shared).info({"version": build()})
        self.registry.register(self._readings())
        self.shared.register(self._shared_readings())
        self._requests = _Requests()
        self.registry.register(self._requests)
        self._count_calls()
        self._count_uploads()
        self.failed_logins = self._counter("failed_logins", "Credentials that were not valid.", "credential")
        for credential in ("token", "signature"):
            self.failed_logins.labels(credential)
        self.damaged = self._counter("damaged_reads", "Reads that failed their checksum.")
        self.broken = self._counter("broken_answers", "Truncated responses.")
        self.loop_lag = Gauge("protoslice_loop_lag_seconds", "Latest event loop lag.", registry=self.registry)

    def observe(self, stores: Stores, spaces: Spaces, database: Database) -> None:
        """Include these parts of the application in all later scrapes."""
        self._stores, self._spaces, self._database = stores, spaces, database

    def record(self, context: RequestContext, seconds: float) -> None:
        """Count one request with its duration."""
        self._requests.add(context, seconds)

    def record_call(self, call: Call) -> None:
        """Count one call of the storage. This method is the observer of a `MeteredStorage`."""
        times, read = self._of_call(call.name)
        times.observe(call.seconds)
        read.inc(call.bytes_read)
        if call.error is not None:
            self._call_errors.labels(call.error, call.name).inc()

    def record_transaction(self, kind: str, seconds: float, error: str | None) -> None:
        """Count one transaction. This method is the observer of a `Database`."""
        self._transactions.labels(kind).observe(seconds)
        if error is not None:
            self._transaction_errors.labels(error, kind).inc()

    def stage(self, name: str, seconds: float) -> None:
        """Record the duration of one stage of an ingest."""
        self._stages.labels(name).observe(seconds)

    def render(self) -> bytes:
        """Return the metrics in Prometheus's text format. Any thread may call this."""
        return generate_latest(self.registry) + SHARED + b"\n" + generate_latest(self.shared)

    async def watch_loop(self) -> None:
        """Measure repeatedly how late the event loop runs this task."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            self.loop_lag.set(max(0.0, loop.time() - due))

    async def watch_totals(self, database: Database) -> None:
        """Read the totals of the catalogue repeatedly. While the database fails, keep the last totals."""
        while True:
            with suppress(ProtosliceError):
                self._totals = await _totals(database)
            await asyncio.sleep(TOTALS_EVERY_SECONDS)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"protoslice_{name}", about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, *labels: str) -> Histogram:
        return Histogram(f"protoslice_{name}", about, labels, buckets=BOUNDS, registry=self.registry)

    def _count_calls(self) -> None:
        times = self._histogram("storage_call_seconds", "Duration of each storage call.", "operation")
        read = self._counter("storage_read_bytes", "Bytes read from the storage.", "operation")
        self._of_call = cache(lambda operation: (times.labels(operation), read.labels(operation)))
        self._call_errors = self._counter("storage_errors", "Failed storage calls.", "error", "operation")
        self._transactions = self._histogram(
            "database_transaction_seconds", "Duration of each transaction, with waiting and all attempts.", "kind"
        )
        for kind in ("read", "write"):
            self._transactions.labels(kind)
        self._transaction_errors = self._counter("database_errors", "Failed transactions.", "error", "kind")

    def _count_uploads(self) -> None:
        self._stages = self._histogram("ingest_stage_seconds", "Time in each stage of an ingest.", "stage")
        self.open_uploads = Gauge("protoslice_open_uploads", "Uploads in progress.", registry=self.registry)
        self.resumable = self._counter("resumable_uploads", "Resumable uploads by outcome.", "event")

    def _readings(self) -> _Readings:
        """Return the metrics of this worker that are read for each scrape."""
        row, count = _Reading, partial(_Reading, family=CounterMetricFamily)
        certificate = "Unix time at which the TLS certificate expires; absent without TLS."
        unpublished = "Bytes that uploads in progress have written, and that nothing refers to yet."
        return _Readings(
            count("cache_reads", "Cache reads of blocks and records.", "result", self._cached("hits", "misses")),
            count("cache_read_bytes", "Bytes of cache reads.", "result", self._cached("hit_bytes", "missed_bytes")),
            count("cache_evictions", "Files removed from the cache directory to make room.", None, self._evicted),
            count("cache_write_failures", "Failed writes to the cache directory.", None, self._write_failures),
            row("space_requests", "Requests in progress in a space.", "space", self._of_spaces(lambda of: of.requests)),
            row("database_connections", "Connections of the pools by state.", "state", self._connections),
            row("database_waiting", "Transactions that wait for a connection.", None, self._waiting),
            row("certificate_expiry_timestamp_seconds", certificate, None, lambda: _sample(self.certificate_expires())),
            row("open_requests", "Requests in progress.", None, lambda: _sample(self.under_way)),
            row("open_streams", "Streamed responses in progress.", None, lambda: _sample(self.streams)),
            row("unpublished_bytes", unpublished, None, self._unpublished),
        )

    def _shared_readings(self) -> _Readings:
        """Return the metrics that are the same in every worker. They are read for each scrape."""
        row, of_spaces = _Reading, self._of_spaces
        log = "Size of the write-ahead log of SQLite; 0 with PostgreSQL."
        bytes_quota = "Quota of stored bytes of a space; 0 for no limit."
        stores_quota = "Quota of stores of a space; 0 for no limit."
        free = "Free bytes of the storage; absent for buckets."
        return _Readings(
            row("database_log_bytes", log, None, self._log_bytes),
            *(row(name, about, None, partial(self._total, name)) for name, about in _TOTALS.items()),
            row("space_stored_bytes", "Stored bytes of a space.", "space", of_spaces(lambda of: of.used.stored_bytes)),
            row("space_stores", "Stores of a space.", "space", of_spaces(lambda of: of.used.stores)),
            row("space_quota_bytes", bytes_quota, "space", of_spaces(lambda of: of.quota.stored_bytes)),
            row("space_quota_stores", stores_quota, "space", of_spaces(lambda of: of.quota.stores)),
            row("storage_free_bytes", free, None, lambda: _sample(self.free_bytes)),
        )

    def _of_spaces(self, read: Callable[[Quotas], int | None]) -> Callable[[], dict[str, float]]:
        """Return a function that reads a number for each space in memory. The function reads None as 0."""
        return lambda: {} if self._spaces is None else {name: read(of) or 0 for name, of in self._spaces.quotas()}

    def _cached(self, hits: str, misses: str) -> Callable[[], dict[str, float]]:
        """Return a function that reads two counts of the cache of remote objects."""
        return lambda: {"hit": getattr(self._counts(), hits), "miss": getattr(self._counts(), misses)}

    def _counts(self) -> Counts:
        """Return the counts of the cache. All counts are zero if the storage needs no cache."""
        found = None if self._stores is None else self._stores.shared.cache
        return Counts() if found is None else found.counts

    def _evicted(self) -> dict[str, float]:
        found = None if self._stores is None else self._stores.shared.cache
        return _sample(0 if found is None else found.evicted)

    def _write_failures(self) -> dict[str, float]:
        return _sample(self._counts().failures)

    def _unpublished(self) -> dict[str, float]:
        return _sample(0 if self._stores is None else self._stores.shared.reservations.unpublished_bytes)

    def _log_bytes(self) -> dict[str, float]:
        return _sample(0 if self._database is None else self._database.log_bytes())

    def _total(self, name: str) -> dict[str, float]:
        return _sample(self._totals.get(name))

    def _connections(self) -> dict[str, float]:
        if self._database is None:
            return {}
        pools = list(self._database.lanes())
        busy = sum(pool.busy for pool in pools)
        return {"busy": busy, "free": sum(pool.connections for pool in pools) - busy}

    def _waiting(self) -> dict[str, float]:
        return _sample(None if self._database is None else sum(pool.waiting for pool in self._database.lanes()))


def _sample(value: float | None) -> dict[str, float]:
    """Return the sample of a metric without labels. Return no sample if the value is None."""
    return {} if value is None else {"": value}


async def _totals(database: Database) -> dict[str, float]:
    held, tags = await SpaceTable(database).totals()
    trash = await CollectorTable(database).waiting()
    backup, dump = await last_snapshots(database)
    return {
        "stores": held.stores,
        "tags": tags,
        "stored_bytes": held.stored_bytes,
        "logical_bytes": held.logical_bytes,
        "trash_objects": trash.objects,
        "trash_bytes": trash.stored_bytes,
        "unpublished_objects": await ObjectTable(database).count_unpublished(USABLE_SECONDS),
        "last_backup_timestamp_seconds": backup / SECOND,
        "last_dump_timestamp_seconds": dump / SECOND,
    }


_SECONDS: Final = 2.0
"""The seconds within which another worker has to send its metrics. A worker that takes longer is left out."""
_MOST_BYTES: Final = 16 << 20
SHARED: Final = b"# What follows is the same in every worker."
"""The line in a worker's metrics after which all samples are shared by the workers."""


class WorkerMetrics:
    """The metrics of all workers of one supervisor. One of the workers collects these metrics."""

    def __init__(self, folder: Path, number: int, workers: int) -> None:
        self._folder = folder
        self._number = number
        self._workers = workers

    @asynccontextmanager
    async def publish(self, render: Callable[[], bytes]) -> AsyncIterator[None]:
        """Send the result of `render` to each worker that connects while the context lasts."""

        async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                writer.write(await asyncio.to_thread(render))
                await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(send, self._folder / str(self._number))
        try:
            yield
        finally:
            server.close()

    async def collect(self, own: bytes) -> bytes:
        """Return the metrics of all workers that respond. `own` has the metrics of this worker."""
        others = [number for number in range(self._workers) if number != self._number]
        received = await asyncio.gather(*map(self._receive, others))
        texts = {number: text for number, text in zip(others, received, strict=True) if text}
        return await asyncio.to_thread(merged, {self._number: own, **texts})

    async def _receive(self, number: int) -> bytes:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._folder / str(number))
                try:
                    return await _all(reader)
                finally:
                    writer.close()
        return b""


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes up to the end of the stream. Return no bytes if there are too many."""
    found = bytearray()
    while piece := await reader.read(1 << 16):
        found += piece
        if len(found) > _MOST_BYTES:
            return b""
    return bytes(found)


def merged(texts: Mapping[int, bytes]) -> bytes:
    """Merge the metrics of several workers. Each family occurs once, and each sample gets the label `worker`.

    Shared metrics are taken from the first of `texts` and do not get this label. Each occurs once, so that sums are
    right.
    """
    families: dict[bytes, list[bytes]] = {}
    shown = set[bytes]()
    for number, text in texts.items():
        label = b'worker="%d"' % number
        samples: list[bytes] = []
        head = b""
        shared = False
        for line in text.splitlines():
            if line == SHARED:
                shared = True
            elif line.startswith(b"# HELP "):
                head = line
            elif line.startswith(b"#"):
                samples = families.setdefault(head + b"\n" + line, [])
            elif shared:
                if (name := line.rpartition(b" ")[0]) not in shown:
                    shown.add(name)
                    samples.append(line)
            else:
                samples.append(_labelled(line, label))
    return b"".join(b"\n".join((head, *samples)) + b"\n" for head, samples in families.items())


def _labelled(line: bytes, label: bytes) -> bytes:
    """Add a label to a sample. The sample's name has neither blanks nor braces, but values of labels may have them."""
    name, blank, value = line.partition(b" ")
    if b"{" not in name:
        return name + b"{" + label + b"}" + blank + value
    name, _, rest = line.partition(b"{")
    return name + b"{" + label + b"," + rest

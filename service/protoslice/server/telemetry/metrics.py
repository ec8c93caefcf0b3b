"""Metrics for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

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
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.build import build
from protoslice.database.transactions import Lane
from protoslice.server.context import RequestContext
from protoslice.server.telemetry.cache_reads import CacheReads
from protoslice.server.telemetry.peers import SHARED
from protoslice.server.telemetry.request_counts import RequestCounts
from protoslice.server.telemetry.space_gauges import SpaceGauges
from protoslice.server.telemetry.storage_calls import BOUNDS, StorageCalls
from protoslice.server.telemetry.stored_counts import StoredCounts

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LAG_EVERY_SECONDS: Final = 0.5

disable_created_metrics()  # type: ignore[no-untyped-call]


class Reading(Collector):
    """A gauge that is read for each answer, by the values of `label`; no samples of what is not known."""

    def __init__(
        self, name: str, what: str, label: str | None = None, read: Callable[[], Mapping[str, float]] = dict
    ) -> None:
        self._name = name
        self._what = what
        self._labels = [] if label is None else [label]
        self.read = read

    def collect(self) -> Iterator[Metric]:
        """The metric; any thread may call this."""
        family = GaugeMetricFamily(self._name, self._what, labels=self._labels)
        for value, number in self.read().items():
            family.add_metric([value] if self._labels else [], number)
        yield family


class Metrics:
    """Metrics of one application, labelled by route template, method and status: few, whatever is asked.

    What is the same in every worker, as facts of the database are, is in the registry `shared`.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.shared = shared = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("protoslice_build", "Version of this build.", registry=shared).info({"version": build()})
        self._requests = RequestCounts()
        registry.register(self._requests)
        self.storage = StorageCalls(registry)
        self.transactions = Transactions(registry)
        self.log_bytes = Gauge(
            "protoslice_database_log_bytes",
            "Size of the write-ahead log of SQLite; 0 with PostgreSQL.",
            registry=shared,
        )
        self.cache = CacheReads()
        registry.register(self.cache)
        self.stored = StoredCounts()
        shared.register(self.stored)
        self.spaces = SpaceGauges()
        shared.register(self.spaces)
        what = "Requests in progress in a space."
        registry.register(Reading("protoslice_space_requests", what, "space", self.spaces.requests))
        self.free_bytes = Reading("protoslice_storage_free_bytes", "Free bytes of the storage; none for buckets.")
        shared.register(self.free_bytes)
        self.connections = Reading("protoslice_database_connections", "Connections of the pools by state.", "state")
        registry.register(self.connections)
        self.waiting = Reading("protoslice_database_waiting", "Transactions that wait for a connection.")
        registry.register(self.waiting)
        self.certificate = Reading(
            "protoslice_certificate_expiry_timestamp_seconds",
            "End of the certificate since the epoch; none without TLS.",
        )
        registry.register(self.certificate)
        self.failed_logins = Counter(
            "protoslice_failed_logins", "Credentials that were not valid.", ["credential"], registry=registry
        )
        for credential in ("token", "signature"):
            self.failed_logins.labels(credential)
        self._stages = Histogram(
            "protoslice_ingest_stage_seconds",
            "Time in each stage of an ingest.",
            ["stage"],
            buckets=BOUNDS,
            registry=registry,
        )
        self.under_way = 0
        Gauge("protoslice_open_requests", "Requests in progress.", registry=registry).set_function(
            lambda: self.under_way
        )
        self.streams = 0
        streams = Gauge("protoslice_open_streams", "Streamed responses in progress.", registry=registry)
        streams.set_function(lambda: self.streams)
        self.unpublished_bytes = Gauge(
            "protoslice_unpublished_bytes",
            "Bytes that uploads in progress have written, and that nothing refers to yet.",
            registry=registry,
        )
        self.open_uploads = Gauge("protoslice_open_uploads", "Uploads in progress.", registry=registry)
        self.resumable = Counter(
            "protoslice_resumable_uploads", "Resumable uploads by outcome.", ["event"], registry=registry
        )
        self.damaged = Counter("protoslice_damaged_reads", "Reads that failed their checksum.", registry=registry)
        self.broken = Counter("protoslice_broken_answers", "Truncated responses.", registry=registry)
        self.loop_lag = Gauge("protoslice_loop_lag_seconds", "Latest event loop lag.", registry=registry)

    def record(self, context: RequestContext, seconds: float) -> None:
        """One request, which took that long."""
        self._requests.add(context, seconds)

    def stage(self, name: str, seconds: float) -> None:
        """One stage of an ingest."""
        self._stages.labels(name).observe(seconds)

    def render(self) -> bytes:
        """The exposition format; may be called from any thread."""
        return generate_latest(self.registry) + SHARED + b"\n" + generate_latest(self.shared)

    def watch_pools(self, lanes: Iterable[Lane]) -> None:
        """Show the connections of a database from now on."""
        pools = list(lanes)

        def states() -> dict[str, float]:
            busy = sum(pool.busy for pool in pools)
            return {"busy": busy, "free": sum(pool.connections for pool in pools) - busy}

        self.connections.read = states
        self.waiting.read = lambda: {"": sum(pool.waiting for pool in pools)}

    async def watch_loop(self) -> None:
        """Measure for ever how late the event loop wakes us."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            self.loop_lag.set(max(0.0, loop.time() - due))


class Transactions:
    """Observer of a `Database`. Labels are kinds and classes of errors, which are few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "protoslice_database_transaction_seconds",
            "Duration of each transaction, with waiting and all attempts.",
            ("kind",),
            buckets=BOUNDS,
            registry=registry,
        )
        self._seconds = {kind: seconds.labels(kind) for kind in ("read", "write")}
        self._errors = Counter(
            "protoslice_database_errors", "Failed transactions.", ("error", "kind"), registry=registry
        )

    def observe(self, kind: str, seconds: float, error: str | None) -> None:
        """Count one transaction."""
        self._seconds[kind].observe(seconds)
        if error is not None:
            self._errors.labels(error, kind).inc()

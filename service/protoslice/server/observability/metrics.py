"""Metrics for Prometheus.

Requests are tallied in plain numbers and told in Prometheus' terms when somebody asks: the client library takes a lock
for each number, which a small answer would feel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.server.middleware.context import RequestContext
from protoslice.server.observability.cache_reads import CacheReads
from protoslice.server.observability.circuit_state import CircuitState
from protoslice.server.observability.histogram import BOUNDS, PlainHistogram
from protoslice.server.observability.space_gauges import SpaceGauges
from protoslice.server.observability.storage_calls import StorageCalls
from protoslice.server.observability.stored_counts import StoredCounts

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LAG_EVERY_SECONDS: Final = 0.5


class _Tally:
    """Counts of one route, method and status."""

    __slots__ = ("buckets", "received", "sent")

    def __init__(self) -> None:
        self.buckets = PlainHistogram()
        self.received = 0
        self.sent = 0


class _Requests(Collector):
    """The tallies, as metrics."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str, int], _Tally] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["route", "method", "status"]
        count = CounterMetricFamily("protoslice_requests", "Requests answered.", labels=labels)
        seconds = HistogramMetricFamily(
            "protoslice_request_seconds", "Time from the request's headers to the end of the response.", labels=labels
        )
        received = CounterMetricFamily("protoslice_received_bytes", "Request body bytes received.", labels=labels)
        sent = CounterMetricFamily("protoslice_sent_bytes", "Response body bytes sent.", labels=labels)
        for (route, method, status), tally in sorted(self.tallies.copy().items()):  # requests go on meanwhile
            values = [route, method, str(status)]
            count.add_metric(values, tally.buckets.count)
            seconds.add_metric(values, tally.buckets.cumulated(), tally.buckets.seconds)
            received.add_metric(values, tally.received)
            sent.add_metric(values, tally.sent)
        yield from (count, seconds, received, sent)


class Metrics:
    """Metrics of one application, labelled by route template, method and status: few, whatever is asked."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = _Requests()
        registry.register(self._requests)
        self.storage = StorageCalls()
        registry.register(self.storage)
        self.circuit = CircuitState()
        registry.register(self.circuit)
        self.cache = CacheReads()
        registry.register(self.cache)
        self.stored = StoredCounts()
        registry.register(self.stored)
        self.spaces = SpaceGauges()
        registry.register(self.spaces)
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
        self.open_uploads = Gauge("protoslice_open_uploads", "Uploads in progress.", registry=registry)
        self.resumable = Counter(
            "protoslice_resumable_uploads", "Resumable uploads by outcome.", ["event"], registry=registry
        )
        self.damaged = Counter("protoslice_damaged_reads", "Reads that failed their checksum.", registry=registry)
        self.broken = Counter("protoslice_broken_answers", "Truncated responses.", registry=registry)
        self.loop_lag = Gauge("protoslice_loop_lag_seconds", "Latest event loop lag.", registry=registry)

    def record(self, context: RequestContext, seconds: float) -> None:
        """One request, which took that long."""
        key = (context.route, context.method, context.status)
        tally = self._requests.tallies.get(key)
        if tally is None:
            tally = self._requests.tallies[key] = _Tally()
        tally.buckets.observe(seconds)
        tally.received += context.bytes_in
        tally.sent += context.bytes_out

    def stage(self, name: str, seconds: float) -> None:
        """One stage of an ingest."""
        self._stages.labels(name).observe(seconds)

    def render(self) -> bytes:
        """The exposition format; may be called from any thread."""
        return generate_latest(self.registry)

    async def watch_loop(self) -> None:
        """Measure for ever how late the event loop wakes us."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            self.loop_lag.set(max(0.0, loop.time() - due))

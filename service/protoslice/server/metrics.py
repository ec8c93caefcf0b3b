"""What Prometheus sees."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LAG_EVERY_SECONDS: Final = 0.5
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)


class Metrics:
    """The metrics of one application. Labels are route templates, methods and statuses: few, whatever is asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram, Counter, Counter]] = {}
        labels = ["route", "method"]
        self._requests = Counter(
            "protoslice_requests", "Requests answered.", [*labels, "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "protoslice_request_seconds", "Time from head to end.", labels, buckets=_SECONDS, registry=self.registry
        )
        self._received = Counter("protoslice_received_bytes", "Body bytes received.", labels, registry=self.registry)
        self._sent = Counter("protoslice_sent_bytes", "Body bytes sent.", labels, registry=self.registry)
        self._stages = Histogram(
            "protoslice_ingest_stage_seconds",
            "Time in each stage of an ingest.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.open_requests = Gauge("protoslice_open_requests", "Requests under way.", registry=self.registry)
        self.open_uploads = Gauge("protoslice_open_uploads", "Uploads under way.", registry=self.registry)
        self.damaged = Counter("protoslice_damaged_reads", "Reads that failed their checksum.", registry=self.registry)
        self.broken = Counter("protoslice_broken_answers", "Answers cut after their head.", registry=self.registry)
        self.loop_lag = Gauge(
            "protoslice_loop_lag_seconds", "How late the event loop was last.", registry=self.registry
        )

    def record(self, route: str, method: str, status: int, *, seconds: float, received: int, sent: int) -> None:
        """One request."""
        key = (route, method, status)
        known = self._known.get(key) or self._learn(key)
        requests, histogram, bytes_in, bytes_out = known
        requests.inc()
        histogram.observe(seconds)
        if received:
            bytes_in.inc(received)
        if sent:
            bytes_out.inc(sent)

    def stage(self, name: str, seconds: float) -> None:
        """One stage of an ingest."""
        self._stages.labels(name).observe(seconds)

    def _learn(self, key: tuple[str, str, int]) -> tuple[Counter, Histogram, Counter, Counter]:
        route, method, status = key
        pair = (route, method)
        found = (
            self._requests.labels(*pair, str(status)),
            self._seconds.labels(*pair),
            self._received.labels(*pair),
            self._sent.labels(*pair),
        )
        self._known[key] = found
        return found

    def render(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    async def watch_loop(self) -> None:
        """Measure for ever how late the event loop wakes us."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            self.loop_lag.set(max(0.0, loop.time() - due))

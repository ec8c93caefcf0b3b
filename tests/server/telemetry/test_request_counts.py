"""Counts of requests: what Prometheus' own counters would show."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from protoslice.server.context import RequestContext
from protoslice.server.telemetry.request_counts import RequestCounts
from protoslice.server.telemetry.storage_calls import BOUNDS

LABELS = ("route", "method", "status")
REQUESTS = [
    ("/v1/stores", "GET", 200, 0.0005, 0, 70),
    ("/v1/stores", "GET", 200, 0.00051, 0, 7),
    ("/v1/stores", "PUT", 201, 2.5, 1 << 40, 300),
    ('/a"\n\\', "GET", 404, 700.0, 0, 0),
]


def test_counts_are_those_of_the_library() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counts = RequestCounts()
    ours.register(counts)
    number = Counter("protoslice_requests", "", LABELS, registry=theirs)
    times = Histogram("protoslice_request_seconds", "", LABELS, buckets=BOUNDS, registry=theirs)
    received = Counter("protoslice_received_bytes", "", LABELS, registry=theirs)
    sent = Counter("protoslice_sent_bytes", "", LABELS, registry=theirs)
    for route, method, status, seconds, bytes_in, bytes_out in REQUESTS:
        context = RequestContext(None, method=method)
        context.route, context.status, context.bytes_in, context.bytes_out = route, status, bytes_in, bytes_out
        counts.add(context, seconds)
        labels = (route, method, str(status))
        number.labels(*labels).inc()
        times.labels(*labels).observe(seconds)
        received.labels(*labels).inc(bytes_in)
        sent.labels(*labels).inc(bytes_out)
    assert _samples(ours) == _samples(theirs)


def _samples(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if not line.startswith("#") and "_created" not in line)

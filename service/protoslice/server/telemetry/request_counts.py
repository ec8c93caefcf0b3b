"""Requests, counted by route, method and status in plain numbers.

A counter of Prometheus' library takes a lock and costs ten times as much, which a small answer would feel.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.server.context import RequestContext
from protoslice.server.telemetry.storage_calls import BOUNDS

_LABELS: Final = ("route", "method", "status")
_UP_TO: Final = (*map(str, BOUNDS), "+Inf")


class _Count:
    """Requests of one route, method and status."""

    __slots__ = ("received", "seconds", "sent", "times")

    def __init__(self) -> None:
        self.times = [0] * len(_UP_TO)
        """Requests by the first bound that is not below their time."""
        self.seconds = 0.0
        self.received = 0
        self.sent = 0


class RequestCounts(Collector):
    """Counts of requests, which one thread adds to and any thread may collect."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], _Count] = {}

    def add(self, context: RequestContext, seconds: float) -> None:
        """Count one request, which took that long."""
        key = (context.route, context.method, context.status)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count()
        count.times[bisect_left(BOUNDS, seconds)] += 1
        count.seconds += seconds
        count.received += context.bytes_in
        count.sent += context.bytes_out

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        requests = CounterMetricFamily("protoslice_requests", "Requests answered.", labels=_LABELS)
        seconds = HistogramMetricFamily(
            "protoslice_request_seconds",
            "Time from the request's headers to the end of the response.",
            labels=_LABELS,
        )
        received = CounterMetricFamily("protoslice_received_bytes", "Request body bytes received.", labels=_LABELS)
        sent = CounterMetricFamily("protoslice_sent_bytes", "Response body bytes sent.", labels=_LABELS)
        for (route, method, status), count in sorted(self._counts.copy().items()):
            labels, times = (route, method, str(status)), list(accumulate(count.times))
            requests.add_metric(labels, times[-1])
            seconds.add_metric(labels, list(zip(_UP_TO, times, strict=True)), count.seconds)
            received.add_metric(labels, count.received)
            sent.add_metric(labels, count.sent)
        yield from (requests, seconds, received, sent)

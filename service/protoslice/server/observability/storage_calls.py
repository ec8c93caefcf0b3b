"""Calls of the storage, counted for Prometheus by operation."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.server.observability.histogram import PlainHistogram
from protoslice.storage import Call


class _Tally:
    """Times, bytes and errors of one operation."""

    __slots__ = ("buckets", "errors", "read_bytes")

    def __init__(self) -> None:
        self.buckets = PlainHistogram()
        self.read_bytes = 0
        self.errors: dict[str, int] = {}


class StorageCalls(Collector):
    """Observer of a `MeteredStorage`. Labels are operations and classes of errors: few, whatever is asked."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def observe(self, call: Call) -> None:
        """Count one call, on the event loop."""
        tally = self._tallies.get(call.name)
        if tally is None:
            tally = self._tallies[call.name] = _Tally()
        tally.buckets.observe(call.seconds)
        tally.read_bytes += call.bytes_read
        if call.error is not None:
            tally.errors[call.error] = tally.errors.get(call.error, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """The metrics; any thread may call this."""
        seconds = HistogramMetricFamily(
            "protoslice_storage_call_seconds", "Duration of each storage call.", labels=["operation"]
        )
        read = CounterMetricFamily(
            "protoslice_storage_read_bytes", "Bytes read from the storage.", labels=["operation"]
        )
        errors = CounterMetricFamily(
            "protoslice_storage_errors", "Failed storage calls.", labels=["error", "operation"]
        )
        for operation, tally in sorted(self._tallies.copy().items()):  # calls go on meanwhile
            seconds.add_metric([operation], tally.buckets.cumulated(), tally.buckets.seconds)
            read.add_metric([operation], tally.read_bytes)
            for error, count in sorted(tally.errors.copy().items()):
                errors.add_metric([error, operation], count)
        yield from (seconds, read, errors)

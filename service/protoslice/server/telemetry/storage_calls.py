"""Calls of the storage, counted for Prometheus by operation."""

from __future__ import annotations

from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from protoslice.storage import Call

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
"""Upper bounds in seconds of every histogram."""


class _Row(NamedTuple):
    """Metrics of one operation."""

    seconds: Histogram
    read: Counter


class StorageCalls:
    """Observer of a `MeteredStorage`. Labels are operations and classes of errors, which are few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("operation",)
        self._calls = _Row(
            Histogram(
                "protoslice_storage_call_seconds",
                "Duration of each storage call.",
                labels,
                buckets=BOUNDS,
                registry=registry,
            ),
            Counter("protoslice_storage_read_bytes", "Bytes read from the storage.", labels, registry=registry),
        )
        self._errors = Counter(
            "protoslice_storage_errors", "Failed storage calls.", ("error", *labels), registry=registry
        )
        self._rows: dict[str, _Row] = {}

    def observe(self, call: Call) -> None:
        """Count one call."""
        row = self._rows.get(call.name)
        if row is None:
            seconds, read = self._calls
            row = self._rows[call.name] = _Row(seconds.labels(call.name), read.labels(call.name))
        row.seconds.observe(call.seconds)
        row.read.inc(call.bytes_read)
        if call.error is not None:
            self._errors.labels(call.error, call.name).inc()

"""Transactions of the catalogue, counted for Prometheus by kind."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from protoslice.server.observability.storage_calls import BOUNDS


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

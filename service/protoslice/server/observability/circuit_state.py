"""State of the circuit breaker before the storage, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.storage.retries import RetryBudget
from protoslice.storage.wrappers.circuit import CircuitBreaker


class CircuitState(Collector):
    """State and counts of a `CircuitBreaker` and of a budget of retries; zeros where the storage has none."""

    def __init__(self) -> None:
        self._circuit: CircuitBreaker | None = None
        self._budget: RetryBudget | None = None

    def watch(self, circuit: CircuitBreaker, budget: RetryBudget | None) -> None:
        """Tell of `circuit` and `budget` from now on."""
        self._circuit = circuit
        self._budget = budget

    def collect(self) -> Iterator[Metric]:
        """The metrics; any thread may call this."""
        circuit = self._circuit
        is_open, openings, refused = (
            (circuit.is_open, circuit.openings, circuit.refused) if circuit is not None else (False, 0, 0)
        )
        yield GaugeMetricFamily(
            "protoslice_storage_circuit_open",
            "1 while calls to the storage are refused because it does not respond.",
            is_open,
        )
        yield CounterMetricFamily(
            "protoslice_storage_circuit_openings", "Number of times the storage stopped responding.", openings
        )
        yield CounterMetricFamily(
            "protoslice_storage_refused_calls", "Calls refused while the storage did not respond.", refused
        )
        withheld = 0 if self._budget is None else self._budget.withheld
        yield CounterMetricFamily(
            "protoslice_storage_unretried_calls", "Calls made without retries because too many had failed.", withheld
        )

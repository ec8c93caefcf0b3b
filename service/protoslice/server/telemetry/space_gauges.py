"""Usage and quotas of the spaces that this process has in memory, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.stores.spaces import Spaces


class SpaceGauges(Collector):
    """Gauges of what spaces hold and may hold; nothing before the service has opened its storage."""

    def __init__(self) -> None:
        self._spaces: Spaces | None = None

    def requests(self) -> dict[str, float]:
        """Requests in progress in each space."""
        return {} if self._spaces is None else {name: quotas.requests for name, quotas in self._spaces.quotas()}

    def watch(self, spaces: Spaces) -> None:
        """Tell of `spaces` from now on."""
        self._spaces = spaces

    def collect(self) -> Iterator[Metric]:
        """The metrics; any thread may call this."""
        labels = ["space"]
        stored = GaugeMetricFamily("protoslice_space_stored_bytes", "Stored bytes of a space.", labels=labels)
        stores = GaugeMetricFamily("protoslice_space_stores", "Stores of a space.", labels=labels)
        bytes_quota = GaugeMetricFamily(
            "protoslice_space_quota_bytes", "Quota of stored bytes of a space; 0 for no limit.", labels=labels
        )
        stores_quota = GaugeMetricFamily(
            "protoslice_space_quota_stores", "Quota of stores of a space; 0 for no limit.", labels=labels
        )
        for name, quotas in self._spaces.quotas() if self._spaces is not None else ():
            used, quota = quotas.used, quotas.quota
            stored.add_metric([name], used.stored_bytes)
            stores.add_metric([name], used.stores)
            bytes_quota.add_metric([name], quota.stored_bytes or 0)
            stores_quota.add_metric([name], quota.stores or 0)
        yield from (stored, stores, bytes_quota, stores_quota)

"""Reads that the cache of distant objects answered, and those that it did not, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.stores.cache import BlockCache, Counts


class CacheReads(Collector):
    """Counts of a `BlockCache`; zeros where the storage needs no cache."""

    def __init__(self) -> None:
        self._cache: BlockCache | None = None

    def watch(self, cache: BlockCache | None) -> None:
        """Tell of `cache` from now on."""
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """The metrics; any thread may call this."""
        counts, evictions = (self._cache.counts, self._cache.evicted) if self._cache is not None else (Counts(), 0)
        reads = CounterMetricFamily("protoslice_cache_reads", "Cache reads of blocks and records.", labels=["result"])
        size = CounterMetricFamily("protoslice_cache_read_bytes", "Bytes of cache reads.", labels=["result"])
        for result, number, length in (
            ("hit", counts.hits, counts.hit_bytes),
            ("miss", counts.misses, counts.missed_bytes),
        ):
            reads.add_metric([result], number)
            size.add_metric([result], length)
        evicted = CounterMetricFamily(
            "protoslice_cache_evictions", "Files removed from the cache directory to make room."
        )
        evicted.add_metric([], evictions)
        failed = CounterMetricFamily("protoslice_cache_write_failures", "Failed writes to the cache directory.")
        failed.add_metric([], counts.failures)
        yield from (reads, size, evicted, failed)

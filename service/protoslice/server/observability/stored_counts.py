"""Counts of what the catalogue holds, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.catalog import Database
from protoslice.catalog.spaces import SpaceTable
from protoslice.errors import ProtosliceError

READ_EVERY_SECONDS: Final = 300.0
"""Seconds between two counts."""
_WHAT: Final = {
    "stores": "Stores of all spaces.",
    "tags": "Tags of all spaces.",
    "stored_bytes": "Stored bytes of all spaces, each once.",
    "logical_bytes": "Size of all files of all stores.",
}


class StoredCounts(Collector):
    """Counts that were made last; no sample before the first."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    async def follow(self, database: Database) -> None:
        """Count for ever; without an answer of the database the last counts stay."""
        table = SpaceTable(database)
        while True:
            with suppress(ProtosliceError):
                held, tags = await table.totals()
                self._counts = {
                    "stores": held.stores,
                    "tags": tags,
                    "stored_bytes": held.stored_bytes,
                    "logical_bytes": held.logical_bytes,
                }
            await asyncio.sleep(READ_EVERY_SECONDS)

    def collect(self) -> Iterator[Metric]:
        """The metrics; any thread may call this."""
        counts = self._counts
        for name, what in _WHAT.items():
            family = GaugeMetricFamily(f"protoslice_{name}", what)
            if name in counts:
                family.add_metric([], counts[name])
            yield family

"""Counts of what the catalogue holds, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.objects import ObjectTable
from protoslice.catalog.spaces import SpaceTable
from protoslice.database import Database
from protoslice.database.snapshots import last_snapshots
from protoslice.database.transactions import SECOND
from protoslice.errors import ProtosliceError
from protoslice.stores.writing.reservations import USABLE_SECONDS

READ_EVERY_SECONDS: Final = 300.0
"""Seconds between two counts."""
_WHAT: Final = {
    "stores": "Stores of all spaces.",
    "tags": "Tags of all spaces.",
    "stored_bytes": "Stored bytes of all spaces, each once.",
    "logical_bytes": "Size of all files of all stores.",
    "trash_objects": "Objects whose bytes are still to be deleted.",
    "trash_bytes": "Bytes that are still to be deleted.",
    "unpublished_objects": "Objects that were reserved over an hour ago, and that nothing refers to yet.",
    "last_backup_timestamp_seconds": "Time of the last backup since the epoch; 0 for none.",
    "last_dump_timestamp_seconds": "Time of the last dump into the storage since the epoch; 0 for none.",
}


class StoredCounts(Collector):
    """Counts that were made last; no sample before the first."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}

    async def follow(self, database: Database) -> None:
        """Count for ever; without an answer of the database the last counts stay."""
        table, collector, objects = SpaceTable(database), CollectorTable(database), ObjectTable(database)
        while True:
            with suppress(ProtosliceError):
                held, tags = await table.totals()
                trash = await collector.waiting()
                backup, dump = await last_snapshots(database)
                self._counts = {
                    "stores": held.stores,
                    "tags": tags,
                    "stored_bytes": held.stored_bytes,
                    "logical_bytes": held.logical_bytes,
                    "trash_objects": trash.objects,
                    "trash_bytes": trash.stored_bytes,
                    "unpublished_objects": await objects.count_unpublished(USABLE_SECONDS),
                    "last_backup_timestamp_seconds": backup / SECOND,
                    "last_dump_timestamp_seconds": dump / SECOND,
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

"""Counts of what the storage holds, for Prometheus; those kept last, since a scrape counts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protoslice.errors import ProtosliceError
from protoslice.storage import Storage
from protoslice.stores.collection.tally import KeptTally, last_tally

READ_EVERY_SECONDS: Final = 300.0
"""Seconds between two reads of the kept tally, which collections make."""


class StoredCounts(Collector):
    """Counts of the tally that was read last; no sample of what nobody has counted."""

    def __init__(self) -> None:
        self._tally = KeptTally()

    async def follow(self, storage: Storage) -> None:
        """Read the kept tally for ever; one that the storage does not give leaves that before."""
        while True:
            with suppress(ProtosliceError):
                self._tally = await last_tally(storage)
            await asyncio.sleep(READ_EVERY_SECONDS)

    def collect(self) -> Iterator[Metric]:
        """The metrics; any thread may call this."""
        tally = self._tally
        for name, value, what in (
            ("stores", tally.stores, "Stores of all spaces at the last garbage collection."),
            ("tags", tally.tags, "Tags of all spaces at the last garbage collection."),
            ("stored_bytes", tally.stored_bytes, "Stored bytes of uploads at the last garbage collection."),
            (
                "tally_timestamp_seconds",
                tally.at,
                "Time of the last garbage collection that counted stores, tags and stored bytes.",
            ),
            (
                "logical_bytes",
                tally.logical_bytes,
                "Size of all files of stores at the last run of `protoslice storage usage`.",
            ),
            (
                "logical_bytes_timestamp_seconds",
                tally.logical_at,
                "Time of the last run of `protoslice storage usage`.",
            ),
        ):
            family = GaugeMetricFamily(f"protoslice_{name}", what)
            if value is not None:
                family.add_metric([], value)
            yield family

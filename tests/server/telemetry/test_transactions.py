"""Metrics of the database's transactions."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from tests.support.catalogues import InlineDatabase

from protoslice.database import Transaction
from protoslice.errors import DatabaseUnavailable
from protoslice.server.telemetry.metrics import Transactions


def failing(_: Transaction) -> None:
    raise DatabaseUnavailable("away")


@pytest.mark.anyio
async def test_transactions_are_counted_by_kind_and_error() -> None:
    registry, database = CollectorRegistry(), InlineDatabase()
    database.observer = Transactions(registry).observe

    def counted(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, labels) or 0.0

    await database.read(lambda tx: tx.now)
    await database.write(lambda tx: tx.now)
    for call in (database.read, database.write, database.write):
        with pytest.raises(DatabaseUnavailable):
            await call(failing)
    assert counted("protoslice_database_transaction_seconds_count", kind="read") == 2
    assert counted("protoslice_database_transaction_seconds_count", kind="write") == 3
    assert counted("protoslice_database_errors_total", kind="read", error="DatabaseUnavailable") == 1
    assert counted("protoslice_database_errors_total", kind="write", error="DatabaseUnavailable") == 2

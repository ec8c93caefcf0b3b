"""Calls of the storage in Prometheus' terms, in a live service."""

from __future__ import annotations

import re

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.stores import onnx

from protoslice.server.telemetry.storage_calls import StorageCalls
from protoslice.storage import Call


def _value(text: str, metric: str, **labels: str) -> float:
    told = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    found = re.search(rf"^{metric}{{{re.escape(told)}}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_live_service_counts_the_calls_of_its_storage(client: httpx.Client) -> None:
    before = client.get("/metrics").text
    store = client.put("/v1/stores", content=onnx(20_000)).json()["id"]
    after = client.get("/metrics").text

    def more(metric: str, **labels: str) -> float:
        return _value(after, metric, **labels) - _value(before, metric, **labels)

    assert more("protoslice_storage_call_seconds_count", operation="commit") >= 1
    assert more("protoslice_storage_call_seconds_sum", operation="commit") > 0
    assert store not in after


@pytest.mark.parametrize(("seconds", "bound"), [(0.0004, "0.0005"), (3.0, "10.0"), (1e6, "+Inf")])
def test_a_call_counts_in_its_bucket_and_all_above(seconds: float, bound: str) -> None:
    registry = CollectorRegistry()
    calls = StorageCalls(registry)
    calls.observe(Call("get_range", seconds, 100, None))
    calls.observe(Call("get_range", seconds, 20, None))
    text = generate_latest(registry).decode()
    bucket = {"operation": "get_range", "le": bound}
    assert _value(text, "protoslice_storage_call_seconds_bucket", **dict(sorted(bucket.items()))) == 2
    assert _value(text, "protoslice_storage_call_seconds_count", operation="get_range") == 2
    assert _value(text, "protoslice_storage_read_bytes_total", operation="get_range") == 120
    assert "protoslice_storage_errors_total{" not in text


def test_errors_count_by_their_class() -> None:
    registry = CollectorRegistry()
    calls = StorageCalls(registry)
    for error in ("StorageUnavailable", "StorageUnavailable", "CancelledError", None):
        calls.observe(Call("put", 0.01, 0, error))
    text = generate_latest(registry).decode()
    assert _value(text, "protoslice_storage_errors_total", operation="put", error="StorageUnavailable") == 2
    assert _value(text, "protoslice_storage_errors_total", operation="put", error="CancelledError") == 1
    assert _value(text, "protoslice_storage_call_seconds_count", operation="put") == 4

"""Truth of the page about deployment: metrics and manifests."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from protoslice.server.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/operate/monitoring.md").read_text()


def test_every_metric_is_explained() -> None:
    metrics = Metrics()
    metrics.resumable.labels("begun").inc()
    families = text_string_to_metric_families(metrics.render().decode())
    there = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    there = {name for name in there if not name.endswith("_created")}
    assert {name for table in _tables_of_metrics() for name in table} == there
    assert len(there) >= 12


def test_what_all_workers_share_is_in_a_table_of_its_own() -> None:
    _, once = _tables_of_metrics()
    families = text_string_to_metric_families(generate_latest(Metrics().shared).decode())
    assert once == {family.name for family in families}


def _tables_of_metrics() -> list[set[str]]:
    """Names of the metrics of each worker, and of those that come once."""
    section = PAGE.split("\n## ")[0]
    tables = section.split("| metric | meaning |")[1:]
    return [
        {
            name
            for row in table.splitlines()
            if row.startswith("| `")
            for name in re.findall(r"`(\w+)`", row.split("|")[1])
        }
        for table in tables
    ]

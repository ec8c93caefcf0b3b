"""Truth of the page about deployment: metrics and manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from protoslice.server.observability.metrics import Metrics
from protoslice.server.settings import Settings, environment_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/deployment.md").read_text()
DOCUMENT = json.loads((ROOT / "openapi/openapi.json").read_text())


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def _block(language: str) -> str:
    (found,) = _blocks(language)
    return found


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
    section = PAGE.split("\n## What to watch\n")[1].split("\n## ")[0].split("\n### ")[0]
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


def test_the_pod_asks_what_there_is_and_is_granted_time_to_end() -> None:
    pod = yaml.safe_load(_block("yaml"))
    (container,) = pod["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness", "startup")}
    assert probes["readiness"]["path"] == "/readyz"
    assert {probe["path"] for probe in probes.values()} <= set(DOCUMENT["paths"])
    assert {probe["port"] for probe in probes.values()} == {port["name"] for port in container["ports"]}
    assert container["ports"][0]["containerPort"] == Settings.model_fields["port"].default
    given = {each["name"]: each["value"] for each in container["env"]}
    assert set(given) <= {environment_name(field) for field in Settings.model_fields}
    waits = float(given["PROTOSLICE_DRAIN_NOTICE_SECONDS"]) + Settings.model_fields["drain_seconds"].default
    assert pod["terminationGracePeriodSeconds"] > waits
    security = container["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)


def test_the_unit_is_granted_time_to_end() -> None:
    unit = dict(line.split("=", 1) for line in _block("ini").splitlines() if "=" in line)
    assert int(unit["TimeoutStopSec"]) > Settings.model_fields["drain_seconds"].default

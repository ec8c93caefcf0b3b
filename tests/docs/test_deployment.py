"""Truth of the page about deployment: metrics, manifests, and a backup taken while the service works."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.catalogues import InlineDatabase, catalogue_of
from tests.support.stores import assert_whole, collect_garbage, onnx, opened, upload, visible

from protoslice.defaults import DELETION_DELAY_SECONDS
from protoslice.errors import IntegrityError, NotFound
from protoslice.server.observability.metrics import Metrics
from protoslice.server.settings import Settings, environment_name
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores

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
    named = set(re.findall(r"`(protoslice_\w+)`", PAGE.split("\n## What to watch\n")[1].split("\n## ")[0]))
    assert named == there
    assert len(there) >= 12


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


def _steps() -> list[str]:
    """The steps of the documented backup, in their order."""
    step = r"^(?:protoslice (?=database copy)|rclone copy .*/(?=objects/))(database|objects)"
    return re.findall(step, _blocks("sh")[0], re.MULTILINE)


async def _work(stores: Stores, seed: int) -> None:
    """A store comes, with a tag, and the sixth before it goes and is collected."""
    await upload(stores, onnx(5000, seed=seed), IngestRequest(tags=(f"t:{seed}",)))
    if seed > 5:
        await stores.delete((await stores.tag(f"t:{seed - 6}")).store)
    await collect_garbage(stores.storage, grace_seconds=0, delay_seconds=DELETION_DELAY_SECONDS)


async def _restored(steps: Sequence[str]) -> int:
    """Number of stores in a copy made by steps, while stores come and go; asserts that each of them is whole."""
    live, copy, restored = MemoryStorage(), MemoryStorage(), InlineDatabase()
    async with opened(live) as stores:
        for seed in range(8):
            await _work(stores, seed)
        for step in steps:
            if step == "database":
                catalogue_of(live).copy_to(restored)
            else:
                for key in [stat.key async for stat in live.iterate()]:
                    seed += 1
                    await _work(stores, seed)
                    with suppress(NotFound):  # deleted since it was listed
                        await copy.put(key, (await live.get(key)).data)
            seed += 1
            await _work(stores, seed)
    async with opened(copy, database=restored) as stores:
        found = await visible(stores)
        for info in found.values():
            await assert_whole(stores, info)
        return len(found)


def test_a_backup_in_the_order_given_is_whole_whatever_happens_meanwhile() -> None:
    assert _steps() == ["database", "objects"]
    assert asyncio.run(_restored(_steps())) > 0


def test_a_backup_in_another_order_is_not() -> None:
    with pytest.raises(IntegrityError):
        asyncio.run(_restored(["objects", "database"]))

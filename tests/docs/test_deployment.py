"""Truth of the page about deployment: metrics, manifests, and a backup taken while the service works."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.stores import assert_whole, onnx, opened, upload, visible

from protoslice.errors import IntegrityError, NotFound
from protoslice.server.observability.metrics import Metrics
from protoslice.server.settings import Settings, environment_name
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog.upgrade import upgrade

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


class Pass(NamedTuple):
    """One pass of the documented backup: filters of rclone, of which the first that matches a key decides."""

    filters: list[tuple[bool, re.Pattern[str]]]

    def takes(self, key: str) -> bool:
        """Return True for a key that the pass copies."""
        return next((taken for taken, pattern in self.filters if pattern.fullmatch(f"/{key}")), True)


def _passes() -> list[Pass]:
    """The passes of the documented backup, in their order."""
    script = _blocks("sh")[0].replace("\\\n", " ")
    names = dict(re.findall(r"^([A-Z]+)=(?:'(.*)'|(?:\S*))$", script, re.MULTILINE))
    found = []
    for line in script.splitlines():
        if line.startswith("rclone sync "):
            words = shlex.split(re.sub(r"\$([A-Z]+)", lambda name: names[name[1]], line))
            rules = [words[at + 1].split(" ", 1) for at, word in enumerate(words) if word == "--filter"]
            found.append(Pass([(sign == "+", _pattern(glob)) for sign, glob in rules]))
    return found


def _pattern(glob: str) -> re.Pattern[str]:
    """A glob of rclone as an expression: `*` within a segment, `**` anything, `{a,b}` one of several."""
    parts = {"**": ".*", "*": "[^/]*", "{": "(?:", "}": ")", ",": "|"}
    return re.compile(re.sub(r"\*\*|[*{},]|[^*{},]+", lambda part: parts.get(part[0], re.escape(part[0])), glob))


async def _work(stores: Stores, seed: int) -> None:
    """A store comes, with a tag, and the sixth before it goes."""
    await upload(stores, onnx(5000, seed=seed), IngestRequest(tags=(f"t:{seed}",)))
    if seed > 5:
        await stores.delete((await stores.tag(f"t:{seed - 6}")).store)


async def _backup(passes: list[Pass]) -> MemoryStorage:
    """A copy made by the passes in that order, while stores come and go between one object and the next."""
    live, copy = MemoryStorage(), MemoryStorage()
    async with opened(live) as stores:
        for seed in range(6):
            await _work(stores, seed)
        for each in passes:
            for key in filter(each.takes, [stat.key.text async for stat in live.iterate()]):
                seed += 1
                await _work(stores, seed)
                with suppress(NotFound):  # removed since it was listed
                    size = (await live.stat(ObjectKey(key))).size
                    await copy.put(ObjectKey(key), await live.get_range(ObjectKey(key), 0, size))
    return copy


async def _restored(passes: list[Pass]) -> int:
    """Number of stores in such a copy; asserts that each of them is whole."""
    copy = await _backup(passes)
    await upgrade(copy)
    async with opened(copy) as stores:
        found = await visible(stores)
        for info in found.values():
            await assert_whole(stores, info)
        return len(found)


async def test_a_backup_in_the_order_given_is_whole_whatever_happens_meanwhile() -> None:
    assert await _restored(_passes()) > 0


async def test_a_backup_in_another_order_is_not() -> None:
    with pytest.raises(IntegrityError):
        await _restored(_passes()[::-1])

"""The files of `deploy/` refer only to existing names. `make manifests` runs promtool, helm and systemd-analyze.

The runner of `make nightly` and `make release`: the failures that end it with an error, and its table.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests import nightly
from tests.nightly import CHECKS, NIGHTLY, RELEASE, Job
from tests.support.serve import serve
from tools.bills import problems
from tools.package_build import remove_paths

from protoslice.server.settings import Settings, environment_name

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "protoslice"
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
METRIC = re.compile(r"\bprotoslice_[a-z_]+")


def test_alerts_and_dashboard_use_metrics_that_the_service_has(tmp_path: Path) -> None:
    with serve(storage=tmp_path.as_uri(), auth="open") as server:
        text = httpx.get(f"{server.url}/metrics").text
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",)}
    known = {name + suffix for name, kind in families.items() for suffix in suffixes.get(kind, ("",))}
    dashboard = json.loads((DEPLOY / "grafana" / "protoslice.json").read_text())
    expressions = [rule["expr"] for rule in RULES]
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(used) > 20
    assert used - known == set()


def test_each_alert_has_a_section_of_the_runbook_and_a_test_that_it_fires() -> None:
    runbook = (ROOT / "docs/how-to/operate/runbook.md").read_text()
    sections = {name for line in re.findall(r"^### (Protoslice.*)$", runbook, re.M) for name in line.split(", ")}
    cases = yaml.safe_load((DEPLOY / "prometheus" / "alerts.test.yaml").read_text())["tests"]
    fired = {test["alertname"] for case in cases for test in case["alert_rule_test"] if test["exp_alerts"]}
    assert {rule["alert"] for rule in RULES} == sections == fired


def test_chart_and_units_set_settings_that_exist() -> None:
    known = {environment_name(field) for field in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    files = [*CHART.glob("templates/*"), *CHART.glob("ci/*"), CHART / "values.yaml", *DEPLOY.glob("systemd/*")]
    used = {name for file in files for name in re.findall(r"\bPROTOSLICE_[A-Z_]+\b", file.read_text())}
    assert len(used) > 10
    assert used - known == {"PROTOSLICE_PORT", "PROTOSLICE_NAME"} - known


def test_the_unit_grants_time_to_end() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "systemd" / "protoslice.service").read_text(), re.M)
    fields = Settings.model_fields
    assert int(seconds) > fields["drain_seconds"].default + fields["drain_notice_seconds"].default


def test_chart_and_package_have_the_same_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"$', (ROOT / "core" / "Cargo.toml").read_text(), re.M)
    assert version is not None
    assert chart["version"] == chart["appVersion"] == version[1]


def test_packages_of_the_image_are_those_of_the_constraints_with_hashes() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    found = re.findall(
        r"^([\w.-]+)==([^\s;]+)([^\n]*\\\n(?:.*--hash=.*\n)+)", (ROOT / "docker/requirements.txt").read_text(), re.M
    )
    assert len(found) > 40
    assert not [name for name, version, _ in found if pinned.get(name, version) != version]
    lines = [line for line in (ROOT / "docker/requirements.txt").read_text().splitlines() if not line.startswith(" ")]
    assert len(lines) == len(found), "each package has its hashes"


def test_packages_of_the_page_have_digests_and_no_address() -> None:
    text = (ROOT / "web" / "package-lock.json").read_text()
    own, *packages = json.loads(text)["packages"].values()
    manifest = json.loads((ROOT / "web" / "package.json").read_text())
    assert {name: own[name] for name in ("dependencies", "devDependencies")} == {
        name: manifest[name] for name in ("dependencies", "devDependencies")
    }
    assert len(packages) > 50
    assert all(package["integrity"].startswith("sha512-") for package in packages)
    assert "resolved" not in text, "npm writes the registry's address without web/.npmrc"


@pytest.mark.parametrize(
    ("name", "licences", "refused"),
    [
        ("a", [{"license": {"id": "MIT"}}], False),
        ("a", [{"expression": "(MIT OR Apache-2.0) AND Unicode-3.0"}], False),
        ("a", [{"license": {"id": "MIT"}}, {"license": {"name": "License :: OSI Approved"}}], False),
        ("a", [{"license": {"id": "GPL-3.0-only"}}], True),
        ("a", [{"expression": "MIT AND LGPL-2.1-or-later"}], True),
        ("a", [{"license": {"name": "see the file"}}], True),
        ("a", [], True),
        ("psycopg", [{"license": {"id": "LGPL-3.0-only"}}], False),
        ("psycopg", [{"license": {"id": "GPL-3.0-only"}}], True),
    ],
)
def test_licences_that_are_unknown_or_copyleft_are_refused(
    name: str, licences: list[dict[str, Any]], refused: bool
) -> None:
    assert bool(problems([{"name": name, "version": "1", "licenses": licences}])) is refused


def test_the_folder_of_a_build_is_not_in_its_wheel(tmp_path: Path) -> None:
    wheels = []
    for folder in (tmp_path / "one", tmp_path / "another"):
        folder.mkdir()
        wheel = folder / "p.whl"
        with zipfile.ZipFile(wheel, "w") as made:
            for name, text in (
                ("p/a.cyclonedx.json", f'"path+{folder.as_uri()}/core"'),
                ("p-1.dist-info/RECORD", f"p/a.cyclonedx.json,sha256={len(str(folder))},1\n"),
            ):
                made.writestr(zipfile.ZipInfo(name), text)
        remove_paths(wheel, folder)
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]


MAKEFILE = """
good:
\t@echo fine
bad:
\t@exit 3
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # `make test` runs this test: a nested make prints its folder
    monkeypatch.delenv("MAKELEVEL", raising=False)
    monkeypatch.setattr(nightly, "machines", lambda: ([], []))


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    jobs = (Job("good"), Job("bad"), Job("lacking", "no-such-program"), Job("unbuilt", file="dist", hint="build it"))
    monkeypatch.setattr(nightly, "NIGHTLY", jobs)
    return nightly.main(["nightly", *words]), capsys.readouterr().out


@pytest.mark.usefixtures("checkout")
def test_all_jobs_run_and_one_table_says_how_they_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(monkeypatch, capsys)
    assert code == 1
    assert re.search(r"^\| good \| passed \|", said, re.M)
    assert re.search(r"^\| bad \| failed \|.*see .make/nightly/bad.log", said, re.M)
    assert "| lacking | not run |  | no-such-program: not installed |" in said
    assert "| unbuilt | not run |  | no dist: build it |" in said
    kept = json.loads(Path(".make/nightly/nightly.json").read_text())
    assert kept.keys() == {"commit", "date", "hardware", "results"}
    assert Path(".make/nightly/good.log").read_text() == "fine\n"


@pytest.mark.usefixtures("checkout")
def test_a_job_may_be_allowed_not_to_run_and_never_to_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys, "--only", "good")[0] == 0
    assert run(monkeypatch, capsys, "--only", "lacking")[0] == 1
    code, said = run(monkeypatch, capsys, "--only", "lacking", "--allow", "lacking")
    assert (code, "(allowed)" in said) == (0, True)
    assert run(monkeypatch, capsys, "--only", "bad", "--allow", "bad")[0] == 1
    with pytest.raises(SystemExit):
        run(monkeypatch, capsys, "--allow", "typo")


@pytest.mark.usefixtures("checkout")
def test_jobs_are_goals_of_the_makefile_and_leave_none_out() -> None:
    (phony,) = re.findall(r"^.PHONY: (help(?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.M)
    goals = set(phony.replace("\\", "").split())
    others = {"help", "dev", "run", "pins", "fmt", "docs", "protos", "web", "clean", "replicas"}
    others |= {"check", "check-package", "check-core", "test-core"}  # parts of `make test`
    results = {"bench", "screenshots", "models", "fuzz"}  # numbers and pictures to look at; fuzzing has no end
    assert {job.goal for job in RELEASE} == goals - others - results - {"nightly", "release"}
    assert {job.goal for job in CHECKS} <= {job.goal for job in NIGHTLY} <= {job.goal for job in RELEASE}

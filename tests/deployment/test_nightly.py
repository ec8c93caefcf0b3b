"""The runner of `make nightly` and `make release`: what ends it with an error, and what its table says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests import nightly
from tests.nightly import CHECKS, NIGHTLY, RELEASE, Job

ROOT = Path(__file__).parents[2]
MAKEFILE = """
good:
\t@echo fine
bad:
\t@exit 3
"""


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.delenv(
        "MAKEFLAGS", raising=False
    )  # `make test` runs this test: a make below another one says where it is
    monkeypatch.delenv("MAKELEVEL", raising=False)
    monkeypatch.setattr(nightly, "machines", lambda: ([], []))


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    jobs = (Job("good"), Job("bad"), Job("lacking", "no-such-program"), Job("unbuilt", file="dist", hint="build it"))
    monkeypatch.setattr(nightly, "NIGHTLY", jobs)
    return nightly.main(["nightly", *words]), capsys.readouterr().out


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


def test_jobs_are_goals_of_the_makefile_and_leave_none_out() -> None:
    (phony,) = re.findall(r"^.PHONY: (help(?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.M)
    goals = set(phony.replace("\\", "").split())
    others = {"help", "dev", "run", "pins", "fmt", "docs", "protos", "web", "clean", "replicas"}
    others |= {"check", "check-package", "check-core", "test-core"}  # parts of `make test`
    results = {"bench", "screenshots", "models", "fuzz"}  # figures and pictures to look at; fuzzing has no end
    assert {job.goal for job in RELEASE} == goals - others - results - {"nightly", "release"}
    assert {job.goal for job in CHECKS} <= {job.goal for job in NIGHTLY} <= {job.goal for job in RELEASE}

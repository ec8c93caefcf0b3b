"""A run of every benchmark on data of a thousandth of its size; no time is judged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.bucket import GATEWAY
from bench.run import SUBJECTS, table
from bench.timing import Row

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    "engine": 15,
    "streams": 6,
    "packed": 2,
    "waiting": 1,
    "tensors": 4,
    "files": 3,
    "service": 9,
    "client": 8,
    "bucket": 16,
    "workers": 3,
    "signed": 2,
    "distance": 82,
    "endurance": 1,
    "listing": 24,
}
PEERS = {"service": ("wrk", "nginx"), "workers": ("wrk",), "signed": ("wrk",)}
"""The programs that a benchmark needs; a benchmark names the programs that are missing."""


def test_rows_of_all_subjects_are_expected() -> None:
    assert set(ROWS) == set(SUBJECTS)


def test_results_say_commit_day_and_hardware() -> None:
    lines = table([Row("reads", "2/s", "1/s", 2.0, 1.5), Row("  of which lost", "3", "2", 1.5, 1, False)]).splitlines()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    words = lines[0].replace(",", " ").replace("-dirty", "").split()
    assert words[0] == "Commit"
    assert len(words[1]) >= 7
    assert head.startswith(words[1])
    assert " GiB of memory; load " in lines[0]
    assert lines[4:] == ["| reads | 2/s | 1/s | 2 | ≥ 1.5 | met |", "| of which lost | 3 | 2 | 1.5 | ≤ 1 | missed |"]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.long
def test_every_benchmark_runs(name: str) -> None:
    command = [sys.executable, "-m", "bench.run", name, "--scale", "0.002"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    missing = [tool for tool in PEERS.get(name, ()) if not shutil.which(tool) and not Path("/usr/sbin", tool).exists()]
    if missing:
        assert done.returncode == 1
        assert done.stderr.startswith(f"install {' and '.join(missing)} first")
        return
    if name in {"bucket", "distance", "endurance"} and not GATEWAY.exists():
        assert done.returncode == 1
        assert done.stderr.startswith("build the gateway first")
        return
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= ROWS[name]
    assert all(line.endswith(("met", "MISSED")) for line in lines)

"""Every benchmark runs, on data of a thousandth of its size; no time is judged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.bucket import GATEWAY
from bench.loading import PEERS as PEERS_OF_LOADING
from bench.oras import DISTRIBUTION, ORAS
from bench.page import can_be_looked_at
from bench.run import APART, ENGINE, SUBJECTS
from bench.snapshot import CLIENT
from tests.hub import BESIDE
from tests.mlflow import WHOLE
from tests.support.environments import is_made

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    "engine": 16,
    "packed": 2,
    "waiting": 1,
    "client": 8,
    "service": 9,
    "tensors": 4,
    "bucket": 16,
    "distance": 82,
    "catalogue": 3,
    "lists": 6,
    "endurance": 1,
    "workers": 3,
    "loading": 3,
    "access": 6,
    "mlflow": 4,
    "oras": 4,
    "snapshot": 1,
    "page": 7,
    "differences": 4,
    "versions": 3,
}
PEERS = {"service": ("wrk", "nginx"), "workers": ("wrk",), "access": ("wrk",), "snapshot": ("nginx",)}
"""Programs that a service is measured with; a benchmark names those that are missing."""


def bench(*names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.run", *names, "--scale", "0.002"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_no_benchmark_is_left_out() -> None:
    assert {*ENGINE, *APART} == set(SUBJECTS)
    assert {"engine", *APART} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.long
def test_every_benchmark_runs(name: str) -> None:
    done = bench(*(() if name == "engine" else (name,)))
    missing = [tool for tool in PEERS.get(name, ()) if not shutil.which(tool) and not Path("/usr/sbin", tool).exists()]
    if missing:
        assert done.returncode == 1
        assert done.stderr.startswith(f"install {' and '.join(missing)} first")
        return
    if name in {"bucket", "distance", "endurance"} and not GATEWAY.exists():
        assert done.returncode == 1
        assert done.stderr.startswith("build the gateway first")
        return
    if name == "loading" and not is_made(*PEERS_OF_LOADING):
        assert done.returncode == 1
        assert done.stderr.startswith("make the peers' environment first")
        return
    if name == "mlflow" and not is_made(WHOLE):
        assert done.returncode == 1
        assert done.stderr.startswith("make MLflow's environment first")
        return
    if name == "snapshot" and not is_made(CLIENT, *BESIDE):
        assert done.returncode == 1
        assert done.stderr.startswith("make the client's environment first")
        return
    if name == "oras" and not (ORAS.exists() and DISTRIBUTION.exists()):
        assert done.returncode == 1
        assert done.stderr.startswith("build the programs first: make .make/")
        return
    if name in {"page", "differences"} and not can_be_looked_at():
        assert done.returncode == 1
        assert done.stderr.startswith("build the page first")
        return
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= ROWS[name]
    assert all(line.endswith(("met", "MISSED")) for line in lines)

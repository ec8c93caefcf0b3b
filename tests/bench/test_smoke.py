"""Every benchmark runs, on data of a thousandth of its size; no time is judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("names", "rows"), [([], 13), (["client"], 8)])
def test_every_benchmark_runs(names: list[str], rows: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", *names, "--scale", "0.002"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= rows
    assert all(line.endswith(("met", "MISSED")) for line in lines)

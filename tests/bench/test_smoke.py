"""Every benchmark runs, on data of a thousandth of its size; no time is judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_benchmark_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/run.py"), "--scale", "0.002"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= 13
    assert all(line.endswith(("met", "MISSED")) for line in lines)

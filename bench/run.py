"""Measure the code against peers: `python -m bench.run NAME… [--scale S]`.

The results of a full-size run are written to `bench/results/NAME.md`, with the commit, the day and the hardware.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench.timing import Row

from bench import (
    bucket,
    client,
    distance,
    endurance,
    engine,
    files,
    listing,
    service,
    signed,
    streams,
    tensors,
    workers,
)

RESULTS = Path(__file__).parent / "results"
SUBJECTS: dict[str, tuple[Callable[[Path, float], Iterator[Row]], ...]] = {
    "engine": (
        engine.indexing,
        engine.feeding,
        engine.opening,
        engine.splitting,
        engine.ropes,
        engine.memory,
        engine.records,
        engine.formats,
    ),
    "streams": (streams.streams,),
    "packed": (streams.packed,),
    "waiting": (streams.waiting,),
    "tensors": (tensors.tensors,),
    "files": (files.files,),
    "service": (service.service,),
    "signed": (signed.signed,),
    "client": (client.client,),
    "bucket": (bucket.bucket,),
    "workers": (workers.workers,),
    "distance": (distance.distance,),
    "endurance": (endurance.endurance,),
    "listing": (listing.listing,),
}


def main() -> None:
    """Measure the named subjects and print a line for each comparison."""
    parser = argparse.ArgumentParser(description="Ratios against peers, from one run.")
    parser.add_argument("names", nargs="+", choices=SUBJECTS, metavar="NAME", help=f"one of {', '.join(SUBJECTS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the data; such results are not kept")
    options = parser.parse_args()
    for name in options.names:
        rows: list[Row] = []
        with tempfile.TemporaryDirectory(prefix="protoslice-bench-") as folder:
            for measure in SUBJECTS[name]:
                for row in measure(Path(folder), options.scale):
                    rows.append(row)
                    print(_line(row), flush=True)
        if options.scale == 1:
            (RESULTS / f"{name}.md").write_text(table(rows))


def _line(row: Row) -> str:
    verdict = "met" if row.met else "MISSED"
    return f"{row.what:<66} {row.ours:>10}  {row.peer:>12}  {row.ratio:>9.4g} {row.sign} {row.target:<6g} {verdict}"


def table(rows: list[Row]) -> str:
    """Return the results as Markdown, below a line with the commit, the day and the hardware."""
    lines = [conditions(), "", "| what | ours | peer | ratio | target | |", "|---|---|---|---|---|---|"]
    for row in rows:
        target, verdict = f"{row.sign} {row.target:g}", "met" if row.met else "missed"
        lines.append(f"| {row.what.strip()} | {row.ours} | {row.peer} | {row.ratio:.4g} | {target} | {verdict} |")
    return "\n".join(lines) + "\n"


def conditions() -> str:
    """Return a line with the commit, the day, the hardware and the machine's load."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True, check=False).stdout.strip()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    hardware = f"{os.cpu_count()} × {_processor()}, {memory} GiB of memory"
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return f"Commit {commit or 'unknown'}, {datetime.now(UTC).date()}; {hardware}; {load}."


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()

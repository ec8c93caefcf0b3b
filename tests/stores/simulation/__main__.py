"""Play histories; print the seeds that fail, and how to play each again. The exit code is 1 with failures."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from tests.stores.simulation.histories import Report, play
from tests.support.postgres import TestServer, running_postgres


def main() -> int:
    """Play the histories that the arguments select."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first history")
    parser.add_argument("--histories", type=int, default=1, help="number of histories, with a seed each")
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    parser.add_argument("--engine", choices=("sqlite", "postgresql"), default="sqlite", help="engine of the catalogue")
    asked = parser.parse_args()
    with running_postgres() if asked.engine == "postgresql" else nullcontext() as server:
        return _play(asked, server)


def _play(asked: argparse.Namespace, server: TestServer | None) -> int:
    report = Report()
    for seed in range(asked.seed, asked.seed + asked.histories):
        play(seed, report, server)
        if seed in report.failed:
            print(f"seed {seed}: {report.failed[seed]}")
            print(
                f"to play it again: python -m tests.stores.simulation --engine {asked.engine} --seed {seed}", flush=True
            )
            if not asked.all:
                break
        if report.histories % 500 == 0:
            print(report, flush=True)
    print(report)
    return int(bool(report.failed))


if __name__ == "__main__":
    sys.exit(main())

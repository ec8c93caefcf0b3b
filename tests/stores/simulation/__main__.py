"""Play histories; print the seeds that fail, and how to play each again. The exit code is 1 with failures."""

from __future__ import annotations

import argparse
import sys

from tests.stores.simulation.histories import Report, play


def main() -> int:
    """Play the histories that the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first history")
    parser.add_argument("--histories", type=int, default=1, help="number of histories, with a seed each")
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    asked = parser.parse_args()
    report = Report()
    for seed in range(asked.seed, asked.seed + asked.histories):
        play(seed, report)
        if seed in report.failed:
            print(f"seed {seed}: {report.failed[seed]}")
            print(f"to play it again: python -m tests.stores.simulation --seed {seed}", flush=True)
            if not asked.all:
                break
        if report.histories % 500 == 0:
            print(report, flush=True)
    print(report)
    return int(bool(report.failed))


if __name__ == "__main__":
    sys.exit(main())

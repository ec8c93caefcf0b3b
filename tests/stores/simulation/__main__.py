"""Plays histories: one by its seed, or many, as `--help` says."""

from __future__ import annotations

import argparse
import sys

from tests.stores.simulation.plans import PROFILES
from tests.stores.simulation.runs import Report, run_in_two, told


def main() -> int:
    """Play; 1 when a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="tell the history of this seed, or the shortest that fails as it does")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed of many")
    parser.add_argument("--histories", type=int, default=1000, help="how many are played")
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="all", help="of which kinds clients are")
    asked = parser.parse_args()
    if asked.seed is not None:
        text, failed = told(asked.seed, asked.profile)
        print(text)
        return int(failed)
    report = Report()
    for part in run_in_two(asked.first, asked.histories, asked.profile):
        report.add(part)
        print(report, *(f"seed {seed}: {text[:200]}" for seed, text in part.failed.items()), sep="\n", flush=True)
        if part.failed and not asked.all:
            break
    for seed, violation in sorted(report.failed.items()):
        print(f"seed {seed}: {violation}")
    if report.failed and not asked.all:
        print(told(min(report.failed), asked.profile)[0])
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Replicas over one catalogue and one storage, under random clients and faults from seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stores.simulation.histories import Report, play
from tests.support.postgres import TestServer

HISTORIES = 160
BATCHES = 4
ON_POSTGRESQL = 16
_PLAY = "from tests.stores.simulation.test_simulation import played; print(played(range(900, 903)))"


def played(seeds: range) -> str:
    """Return the counts of some histories."""
    report = Report()
    for seed in seeds:
        play(seed, report)
    return f"{report} {sorted(report.calls.items())}"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_that_must_hold_does_in_every_history(batch: int) -> None:
    size, report = HISTORIES // BATCHES, Report()
    for seed in range(batch * size, (batch + 1) * size):
        play(seed, report)
        assert not report.failed, f"python -m tests.stores.simulation --seed {seed}: {report.failed[seed]}"
    assert {*report.met} >= {"fails", "lost", "late", "dies", "stalls", "cancelled"}


def test_all_that_must_hold_does_on_postgresql(postgres: TestServer) -> None:
    report = Report()
    for seed in range(ON_POSTGRESQL):
        play(seed, report, postgres)
        again = f"python -m tests.stores.simulation --engine postgresql --seed {seed}"
        assert not report.failed, f"{again}: {report.failed[seed]}"
    assert {*report.met} >= {"fails", "lost", "dies", "waits for a lock"}


def test_one_seed_is_one_history_on_postgresql(postgres: TestServer) -> None:
    def played() -> Report:
        report = Report()
        for seed in range(900, 903):
            play(seed, report, postgres)
        return report

    # If several transactions wait, the server decides who gets a lock, which differs at times.
    reports = [played()]
    for _ in range(3):
        reports.append(played())
        if reports[-1] in reports[:-1]:
            return
    raise AssertionError("four plays of the same seeds are four histories")


def test_one_seed_is_one_history_in_every_process() -> None:
    def elsewhere(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[3]
        return subprocess.check_output([sys.executable, "-c", _PLAY], cwd=root, env=environment, text=True)

    played(range(2))  # earlier histories must not matter
    assert played(range(900, 903)) + "\n" == elsewhere("1") == elsewhere("2")

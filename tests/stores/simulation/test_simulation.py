"""Replicas over one storage, under clients, faults and time that are drawn from seeds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stores.simulation.histories import play
from tests.stores.simulation.nature import simulated
from tests.stores.simulation.plans import PROFILES, drawn
from tests.stores.simulation.registers import FOR_EVER, Deed, linearizable
from tests.stores.simulation.runs import run, told

HISTORIES = 300
BATCHES = 6

_DIGEST = """
import hashlib, sys
from tests.stores.simulation.test_simulation import digest
sys.stdout.write(digest(range(10, 15)))
"""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_that_must_hold_does_in_every_history(batch: int) -> None:
    size = HISTORIES // BATCHES
    report = run(range(batch * size, (batch + 1) * size))
    print(report)
    assert not report.failed, "\n" + told(min(report.failed), "all")[0]
    assert len(report.interrupted) > 100
    assert set(report.struck) >= {"slow", "fails", "lost", "dies", "dies after", "still"}


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_few_histories_of_each_profile(profile: str) -> None:
    report = run(range(10_000, 10_010), profile=profile)
    assert not report.failed, "\n" + told(min(report.failed), profile)[0]


def digest(seeds: range) -> str:
    """The digest of all lines of the histories of `seeds`."""
    with simulated() as settle:
        lines = [line for seed in seeds for line in play(drawn(seed), settle, lines=True).journal.lines]
    assert len(lines) > 500
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_one_seed_is_one_history_in_every_process() -> None:
    def elsewhere(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[3]
        return subprocess.run(
            [sys.executable, "-c", _DIGEST], cwd=root, env=environment, capture_output=True, text=True, check=True
        ).stdout

    run(range(3))  # earlier runs must not matter
    assert digest(range(10, 15)) == digest(range(10, 15)) == elsewhere("1") == elsewhere("2")


def did(what: str, *moments: int, told: str = "done", **known: str) -> Deed:
    """A deed between two moments; one that never ended when there is but one."""
    began, ended = (*moments, FOR_EVER)[:2]
    return Deed(what, began, ended=ended, told=told, **known)  # type: ignore[arg-type]


MADE = did("set", 1, 2, store="a", condition="new", etag="1")
LEFT = Deed("drop", 3, of="a", repeats=True)
PERHAPS = did("set", 1, store="a", told="unsure")


@pytest.mark.parametrize(
    "deeds",
    [
        [MADE, did("look", 3, 4, store="a", etag="1")],
        [MADE, did("set", 1, 4, store="b", condition="new", told="refused")],
        [MADE, did("drop", 3, of="a", told="unsure"), did("look", 4, 5, told="missing")],
        [PERHAPS, did("look", 10, 11, told="missing"), did("look", 12, 13, store="a")],
        [MADE, LEFT, did("set", 4, 5, store="a", condition="new"), did("set", 6, 7, store="a", condition="new")],
        [MADE, did("set", 3, 4, store="a", condition="new", of="a")],
    ],
)
def test_what_may_have_been_told_of_a_tag(deeds: list[Deed]) -> None:
    assert linearizable(deeds)


@pytest.mark.parametrize(
    "deeds",
    [
        [MADE, did("look", 3, 4, told="missing")],
        [MADE, did("set", 1, 4, store="b", condition="new")],
        [did("set", 1, 9, store="a", condition="new", told="refused"), did("look", 10, 11, store="a")],
        [MADE, did("set", 3, 9, store="b", condition="1"), did("set", 4, 8, store="c", condition="1")],
        [MADE, did("drop", 3, of="b", told="unsure"), did("look", 4, 5, told="missing")],
        [PERHAPS, did("look", 10, 11, store="a"), did("look", 12, 13, told="missing")],
        [MADE, LEFT, did("set", 4, 5, store="b", condition="new"), did("look", 6, 7, told="missing")],
        [MADE, did("set", 3, 4, store="b", condition="new", of="b")],
    ],
)
def test_what_cannot_have_been_told_of_a_tag(deeds: list[Deed]) -> None:
    assert not linearizable(deeds)

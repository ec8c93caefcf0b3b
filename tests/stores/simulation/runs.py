"""Runs of many histories in two processes: their troubles, and the first failure, made short."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context

from tests.stores.simulation.histories import Outcome, Setting, play
from tests.stores.simulation.journal import Point
from tests.stores.simulation.nature import simulated
from tests.stores.simulation.plans import Plan, drawn
from tests.stores.simulation.shrinking import shrunk

COLLECTED_EVERY = 20
"""Histories between two collections of Python's own garbage, which must not come by chance within one."""


@dataclass(slots=True)
class Report:
    """Totals of many histories."""

    histories: int = 0
    calls: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    interrupted: set[Point] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """By seed, what did not hold."""

    def add(self, other: Report) -> None:
        """Take in what other histories came to."""
        self.histories += other.histories
        self.calls += other.calls
        self.struck += other.struck
        self.interrupted |= other.interrupted
        self.failed |= other.failed

    def __str__(self) -> str:
        struck = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.struck.items()))
        return (
            f"{self.histories} histories with {self.calls} calls of the storage; troubles: {struck}; "
            f"{len(self.interrupted)} different points were interrupted (method, kind of key, what for); "
            f"{len(self.failed)} failed"
        )


def run(seeds: Iterable[int], *, profile: str = "all", first: bool = True) -> Report:
    """Play the histories of `seeds`, up to the `first` that fails or all of them."""
    report = Report()
    gc.disable()
    try:
        with simulated() as settle:
            for seed in seeds:
                outcome = play(drawn(seed, profile), settle)
                report.histories += 1
                report.calls += outcome.journal.calls
                report.struck += outcome.journal.struck
                report.interrupted |= outcome.journal.interrupted
                if outcome.violation is not None:
                    report.failed[seed] = str(outcome.violation)
                    if first:
                        break
                if report.histories % COLLECTED_EVERY == 0:
                    gc.collect()
    finally:
        gc.enable()
    return report


def run_in_two(first: int, count: int, profile: str) -> Iterable[Report]:
    """Play so many histories from seed `first` on in two processes; reports of a thousand or so at a time."""
    size = 500
    batches = [range(at, min(at + size, first + count)) for at in range(first, first + count, size)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(run, profile=profile, first=False), batches)


def told(seed: int, profile: str) -> tuple[str, bool]:
    """Journal of a seed's history, of a failed one the shortest that fails alike; True if it failed."""
    with simulated() as settle:
        plan = drawn(seed, profile)
        outcome = play(plan, settle)
        if outcome.violation is None:
            outcome = play(plan, settle, lines=True)
            return "\n".join([*outcome.journal.lines, "all that must hold does"]), False
        return _short(plan, outcome, settle, profile), True


def _short(plan: Plan, outcome: Outcome, settle: Setting, profile: str) -> str:
    violation = outcome.violation
    assert violation is not None

    def fails(plan: Plan) -> bool:
        found = play(plan, settle).violation
        return found is not None and found.invariant == violation.invariant

    short = shrunk(replace(plan, fates=outcome.met), fails)
    played = play(short, settle, lines=True)
    actions = [f"{script.name}.{number}  {action}" for script in short.scripts for number, action in script.actions]
    troubles = [f"{label} call {number}: {fate}" for (label, number), fate in (short.fates or {}).items()]
    return "\n".join(
        [
            f"seed {plan.seed}: {played.violation}",
            "",
            "The clients of the shortest history that fails so:",
            *actions,
            "",
            "What befalls them:",
            *(troubles or ["nothing"]),
            "",
            *played.journal.lines,
            "",
            f"seed {plan.seed}: {played.violation}",
            f"to see this again: .venv/bin/python -m tests.stores.simulation --seed {plan.seed} --profile {profile}",
        ]
    )

"""Steps that repeat foretell the next reads; others foretell nothing."""

from __future__ import annotations

from itertools import accumulate, cycle, islice
from random import Random

import pytest

from protoslice.stores.objects.rhythm import Rhythm


def asked(offsets: list[int]) -> int:
    """Reads that had to be waited for, where those that were foreseen are there already."""
    rhythm, there, waited = Rhythm(), set[int](), 0
    for offset in offsets:
        rhythm.note(offset)
        if not any(abs(offset - each) < 60_000 for each in there):
            waited += 1
            there = {offset, *rhythm.foreseen(1000)}
    return waited


@pytest.mark.parametrize(
    "steps", [[70_000], [100_000, 400_000], [100_000, 2_000_000, 300_000], [*range(80_000, 720_000, 80_000)]]
)
def test_reads_in_steps_that_repeat_wait_for_a_few(steps: list[int]) -> None:
    offsets = list(accumulate(islice(cycle(steps), 999), initial=0))
    assert asked(offsets) < 2 * len(steps) + 6 + 1000 // 60


def test_small_differences_and_looks_nearby_disturb_no_rhythm() -> None:
    random, offsets, at = Random(1), list[int](), 0
    for _ in range(300):
        offsets += [at, at + 40, at + 300]
        at += 500_000 + random.randrange(20)
    assert asked(offsets) < 20


def test_reads_without_a_rhythm_foresee_nothing() -> None:
    random, rhythm = Random(1), Rhythm()
    for at in accumulate(random.randrange(70_000, 9_000_000) for _ in range(300)):
        rhythm.note(at)
        assert rhythm.foreseen(100) == []

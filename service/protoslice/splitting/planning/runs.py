"""Runs of elements: spans of a repeated field, each of a limited size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElementSpan:
    """Elements from `begin` up to `end`, and their size in bytes."""

    begin: int
    end: int
    size: int


def cut_into_runs(sizes: Iterable[int], room: int, limit: int) -> list[ElementSpan]:
    """Split elements into runs: the first of up to `room` bytes, others of up to `limit` bytes.

    The first run may be empty. An element over `limit` is a run of its own.
    """
    cuts: list[ElementSpan] = []
    begin = end = total = 0
    for end, size in enumerate(sizes):
        full = total + size > (limit if cuts else room)
        if full and (end > begin or not cuts):
            cuts.append(ElementSpan(begin, end, total))
            begin, total = end, 0
        total += size
    cuts.append(ElementSpan(begin, end + 1 if total or end > begin else begin, total))
    return cuts

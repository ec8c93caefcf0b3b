"""Runs of elements: spans of a repeated field, each of a limited size."""

from __future__ import annotations

from collections.abc import Iterable


def cut_into_runs(sizes: Iterable[int], room: int, limit: int) -> list[tuple[range, int]]:
    """Split elements into runs: the first of up to `room` bytes, others of up to `limit` bytes.

    Return the elements of each run, and their size in bytes.

    The first run may be empty. An element over `limit` is a run of its own.
    """
    cuts: list[tuple[range, int]] = []
    begin = end = total = 0
    for end, size in enumerate(sizes):
        full = total + size > (limit if cuts else room)
        if full and (end > begin or not cuts):
            cuts.append((range(begin, end), total))
            begin, total = end, 0
        total += size
    cuts.append((range(begin, end + 1 if total or end > begin else begin), total))
    return cuts

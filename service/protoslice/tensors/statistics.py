"""Statistics of tensors: extremes, mean, deviation and histogram of all elements or of a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite, prod
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.errors import InvalidInput, Unsupported
from protoslice.facts import Histogram, TensorStatistics
from protoslice.tensors.dtypes import Dtype
from protoslice.tensors.layout import check_budget, distinct_bytes, stored_bytes
from protoslice.tensors.model import Tensor
from protoslice.tensors.reading import ReadableTensor, dequantized, is_resolved, read, resolve

SAMPLE: Final = 1 << 24
"""The default maximum number of elements to read."""
_BINS: Final = 64
RUNS: Final = 64
"""Largest number of runs of neighbouring elements in a sample. Each run is a separate read."""
_READ_AT_ONCE: Final = 8 << 20


def statistics_job(tensor: Tensor, slice_: str | None = None, sample: int | None = None) -> Job[TensorStatistics]:
    """Return the statistics of `tensor`, or of a slice of the tensor.

    If there are more than `sample` elements, read only evenly spread runs of elements. A `sample` of 0 means all
    elements. An element that repeats up to the end is read once. Raise `OverBudget` if the request would compute too
    many bytes.
    """
    tensor = tensor if is_resolved(tensor) else resolve(tensor)[0]
    # Quantized elements are dequantized: users want statistics of the numbers, not of the blocks.
    quantized = tensor.dtype is not None and tensor.dtype.block is not None
    reading = read(dequantized(tensor) if quantized else tensor, slice_, compare=False)
    found = _core.Statistics(_numeric(tensor, reading.dtype).name)
    data, width = reading.bytes, reading.dtype.width
    runs, repeated = runs_and_repeats(prod(reading.shape), distinct_bytes(data) // width, sample)
    check_budget(
        width * sum(end - start for start, end in runs), stored_bytes(data), "set a lower `sample`, or ask for a slice"
    )
    for start, end in runs:
        for first, last in slices_of(start, end, width):
            found.read(data, first, last)
            yield
    if repeated:
        found.repeat(data.read(data.size - width, width), repeated)
    return _found(found, tensor, reading)


def statistics_text(found: TensorStatistics) -> bytes:
    """Return the statistics as JSON."""
    text = json.dumps(asdict(found), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def _numeric(tensor: Tensor, dtype: Dtype) -> Dtype:
    if not dtype.bits:
        raise Unsupported(f"Tensor {tensor.name!r} holds strings, which have no statistics")
    return dtype


def runs_of(count: int, sample: int | None, most_runs: int = RUNS) -> Iterator[tuple[int, int]]:
    """Return the start and end of each run of elements to read among `count` elements.

    A `sample` of 0 means all elements, and None means the default sample.
    """
    most = SAMPLE if sample is None else sample
    if not 0 <= most < 1 << 63:
        raise InvalidInput("Invalid sample: use a number of elements, or 0 for all")
    if not most or count <= most:
        yield 0, count
        return
    runs = min(most_runs, most)
    length = most // runs
    for number in range(runs):
        # The first run begins at the first element, and the last run ends at the last element.
        start = (count - length) * number // max(runs - 1, 1)
        yield start, start + length


def runs_and_repeats(
    count: int, distinct: int, sample: int | None, most_runs: int = RUNS
) -> tuple[list[tuple[int, int]], int]:
    """Return the runs of elements to read among `count`, and the number of further times that the last element counts.

    All elements from number `distinct` on are equal. If the elements before number `distinct` fit into a sample, they
    are read, and the statistics cover all elements.
    """
    runs = list(runs_of(distinct, sample, most_runs))
    if distinct < count and runs == [(0, distinct)]:
        return runs, count - distinct
    return list(runs_of(count, sample, most_runs)), 0


def slices_of(start: int, end: int, width: int) -> Iterator[tuple[int, int]]:
    """Return byte ranges that together hold the elements from `start` up to `end`. Each element has `width` bytes.

    Each range is read in one step of a job.
    """
    step = max(1, _READ_AT_ONCE // width)
    return ((first * width, min(end, first + step) * width) for first in range(start, end, step))


def _found(found: _core.Statistics, tensor: Tensor, reading: ReadableTensor) -> TensorStatistics:
    (looked_at, zeros, nans, infinities), moments, bins = found.found(_BINS)
    least, most, mean, deviation = (each if isfinite(each) else None for each in moments) if moments else [None] * 4
    return TensorStatistics(
        name=tensor.name,
        address=tensor.address,
        dtype=(tensor.dtype or reading.dtype).name,
        shape=reading.shape,
        elements=prod(reading.shape),
        looked_at=looked_at,
        zeros=zeros,
        nans=nans,
        infinities=infinities,
        min=least,
        max=most,
        mean=mean,
        deviation=deviation,
        histogram=None if bins is None else Histogram(bins[0], bins[1], tuple(bins[2])),
    )

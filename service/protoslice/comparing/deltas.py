"""Distances between the elements of two tensors."""

from __future__ import annotations

from math import isfinite, prod

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.errors import Unsupported
from protoslice.facts import TensorDelta
from protoslice.formats.model import Tensor
from protoslice.formats.outputs.statistics import RUNS, runs_and_repeats, slices_of
from protoslice.formats.tensors.conversion import converted, is_float
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.elements import allow, distinct_bytes, stored_bytes
from protoslice.formats.tensors.reading import read


def delta_job(before: Tensor, after: Tensor, sample: int | None = None, most_runs: int = RUNS) -> Job[TensorDelta]:
    """Return the distances of the elements of two tensors.

    Varints of both have been counted (`ready`). Of tensors of more than `sample` elements runs are compared that are
    spread evenly, at most `most_runs`; 0 compares all elements. Floats of different types, and quantized ones, are
    compared as F32. `Unsupported` for tensors of different shapes, and of other different types.
    """
    if before.shape == after.shape and _as_floats(before.dtype, after.dtype):
        before, after = (converted(tensor, DTYPES["F32"]) for tensor in (before, after))
    one, other = (read(tensor, compare=False) for tensor in (before, after))
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        raise Unsupported(
            f"Cannot compare tensors of different types or shapes: {one.dtype.name} {list(one.shape)} and "
            f"{other.dtype.name} {list(other.shape)}"
        )
    found = _core.Delta(one.dtype.name)
    data, width = (one.bytes, other.bytes), one.dtype.width
    sides = (one.bytes.core, one.bytes.sources), (other.bytes.core, other.bytes.sources)
    runs, repeated = runs_and_repeats(prod(one.shape), max(map(distinct_bytes, data)) // width, sample, most_runs)
    computed = 2 * width * sum(end - start for start, end in runs)
    allow(computed, sum(map(stored_bytes, data)), "set a lower `sample`")
    for start, end in runs:
        for first, last in slices_of(start, end, width):
            found.read(*sides, first, last)
            yield
    if repeated:
        one_element, its_twin = (each.read(each.size - width, width) for each in data)
        found.repeat(one_element, its_twin, repeated)
    (looked_at, changed, incomparable, finite), most, total, relative, cosine = found.found()
    return TensorDelta(
        dtype=one.dtype.name,
        shape=one.shape,
        elements=prod(one.shape) * (one.dtype.width // one.dtype.part),
        looked_at=looked_at,
        changed=changed,
        incomparable=incomparable,
        max=_number(most) if finite else None,
        mean=_number(total / finite) if finite else None,
        relative=relative if finite else None,
        cosine=cosine,
    )


def _as_floats(one: Dtype | None, other: Dtype | None) -> bool:
    """True for two types of floats that are compared as F32."""
    if one is None or other is None or not (is_float(one) and is_float(other)):
        return False
    return one is not other or one.block is not None


def _number(value: float) -> float | None:
    return value if isfinite(value) else None

"""Functions that pair the tensors of two models, and measure how far the elements of a pair differ."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from math import isfinite, prod
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.errors import ProtosliceError, Unsupported
from protoslice.facts import EqualTensors, Kind, Move, TensorDelta, TensorMove
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.layout import check_budget, distinct_bytes, stored_bytes
from protoslice.tensors.listing import Tensors, natural
from protoslice.tensors.model import Strings, Tensor, Unreadable
from protoslice.tensors.reading import converted, is_float, read
from protoslice.tensors.statistics import RUNS, runs_and_repeats, slices_of

_NUMBER: Final = re.compile("[0-9]+")
_STEPS: Final = re.compile("[./:]+")
_LAYER: Final = re.compile(r"[^0-9]*[0-9]+|[./]*[^./:]*")
_PLAIN: Final = re.compile("(.*[^0-9]|)(0|[1-9][0-9]{0,14})", re.DOTALL)
"""A name that ends in a number without leading zeros and with at most 15 digits.

JSON parsers of other languages can represent such numbers exactly.
"""
_ALIGNED: Final = 4000
"""Maximum number of tensors, of both sides together, that are aligned by types and shapes.

The names of such tensors only differ in numbers.
"""
_AT_ONCE: Final = 256
_ENDS: Final = 4 << 10
"""Number of bytes at either end of a tensor. A renamed tensor is recognized by these bytes."""
_MOST_FETCHED: Final = 4000
"""Maximum number of tensors whose first and last bytes are read, if they have to be fetched from a service."""
_READ_AT_ONCE: Final = 16
_RUNS: Final = 2
"""Maximum number of reads of each tensor in `move_job`, which may be called for all tensors of a model."""

Pair = tuple[int | None, int | None]
"""The number of a tensor in the first model and in the second model; None stands for a model without the tensor."""


def pairs_job(before: Tensors, after: Tensors, *, local: bool = True) -> Job[Sequence[Pair]]:
    """Pair the tensors of two models, and return the pairs in the order of the names in the second model.

    Tensors with the same name are a pair. The numbers in names may change, for example if a graph is exported again.
    Then tensors are paired in the order of these numbers, by type and shape. Remaining tensors are paired by the end of
    their names, and then by their first and last bytes. Unless the tensors are `local`, these bytes are read only for a
    limited number of tensors.
    """
    families: dict[str, tuple[list[int], list[int]]] = {}
    names: tuple[list[str], list[str]] = ([], [])
    for side, found in enumerate((before, after)):
        called = found.key
        for number in range(len(found)):
            name = called(number)[0]
            names[side].append(name)
            families.setdefault(_NUMBER.sub("#", name), ([], []))[side].append(number)
            if not number % _AT_ONCE:
                yield
    pairs = list[Pair]()
    for olds, news in families.values():
        olds.sort(key=lambda number: natural(names[0][number]))
        news.sort(key=lambda number: natural(names[1][number]))
        pairs += _paired(before, after, olds, news, names)
        yield
    pairs = [*_rematched(pairs, lambda side, number: _trait(names[side][number], (before, after)[side][number]))]
    yield
    looks = yield from _looks_of_single(before, after, pairs, None if local else _MOST_FETCHED)
    pairs = [*_rematched(pairs, lambda side, number: looks[side].get(number), several=True)]
    return sorted(pairs, key=lambda pair: natural(names[0][pair[0] or 0] if pair[1] is None else names[1][pair[1]]))


def _paired(
    before: Tensors, after: Tensors, olds: Sequence[int], news: Sequence[int], names: tuple[list[str], list[str]]
) -> Iterator[Pair]:
    """Pair tensors whose names only differ in numbers; both sides are sorted by name, with numbers by value."""
    keys = [_occurrences(numbers, side) for numbers, side in zip((olds, news), names, strict=True)]
    common, fewer, most = len({*keys[0]} & {*keys[1]}), *sorted((len(olds), len(news)))
    renumbered = common < fewer and 2 * common <= most  # otherwise, tensors were added or removed
    if renumbered and len(olds) != len(news) and len(olds) + len(news) <= _ALIGNED:
        looks = [[_look(before[number]) for number in olds], [_look(after[number]) for number in news]]
        blocks = SequenceMatcher(None, looks[0], looks[1], autojunk=False).get_matching_blocks()
        places = {block.b + n: block.a + n for block in blocks for n in range(block.size)}
    elif renumbered and len(olds) == len(news):
        places = {n: n for n in range(len(news))}
    else:
        known = {key: place for place, key in enumerate(keys[0])}
        places = {place: known[key] for place, key in enumerate(keys[1]) if key in known}
    for place, number in enumerate(news):
        yield olds[places[place]] if place in places else None, number
    taken = set(places.values())
    yield from ((number, None) for place, number in enumerate(olds) if place not in taken)


def _rematched(
    pairs: Sequence[Pair], trait: Callable[[int, int], str | None], *, several: bool = False
) -> Iterator[Pair]:
    """Yield `pairs`, after pairing tensors without a twin that have the same trait.

    `trait` returns the trait of a tensor from its side and number. Several tensors of one side with the same trait are
    paired in order if `several` is set, and otherwise not at all.
    """
    alone: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for side, number in _single(pairs):
        if (found := trait(side, number)) is not None:
            alone[side].setdefault(found, []).append(number)
    twins: dict[int, int] = {}
    for found, news in alone[1].items():
        olds = alone[0].get(found, [])
        if several or len(news) == len(olds) == 1:
            twins.update(zip(news, olds, strict=False))
    taken = set(twins.values())
    for old, new in pairs:
        if old is None and new in twins:
            yield twins[new], new
        elif new is not None or old not in taken:
            yield old, new


def _single(pairs: Sequence[Pair]) -> Iterator[tuple[int, int]]:
    """Yield the side and the number of each tensor without a twin (a paired tensor in the other model)."""
    for old, new in pairs:
        if new is None and old is not None:
            yield 0, old
        elif old is None and new is not None:
            yield 1, new


def _looks_of_single(
    before: Tensors, after: Tensors, pairs: Sequence[Pair], most: int | None
) -> Job[tuple[Mapping[int, str], Mapping[int, str]]]:
    """Return a text for each tensor without a twin, which identifies its type, shape, first bytes and last bytes.

    Tensors without elements are left out. If more than `most` tensors would have to be read, all are left out.
    """
    facts: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for turn, (side, number) in enumerate(_single(pairs), 1):
        tensor = (before, after)[side][number]
        if tensor.size and not isinstance(tensor.data, Unreadable):
            facts[side][number] = _look(tensor)
        if not turn % _AT_ONCE:
            yield
    both = {*facts[0].values()} & {*facts[1].values()}
    wanted = [(side, number) for side in (0, 1) for number, look in facts[side].items() if look in both]
    looks: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for turn, (side, number) in enumerate(wanted if most is None or len(wanted) <= most else (), 1):
        try:
            looks[side][number] = f"{facts[side][number]} {_ends((before, after)[side][number])}"
        except ProtosliceError:  # a tensor that cannot be read gets no twin
            continue
        if not turn % _READ_AT_ONCE:
            yield
    return looks


def _ends(tensor: Tensor) -> str:
    """Return a digest of the tensor's first and last bytes."""
    data = elements_of(tensor)
    size = min(_ENDS, data.size)
    return hashlib.sha256(data.read(0, size) + data.read(data.size - size, size)).hexdigest()


def elements_of(tensor: Tensor) -> Rope:
    """Return the elements of a tensor in the form in which they are compared."""
    return read(tensor, form="json" if isinstance(tensor.data, Strings) else "raw", compare=False).bytes


def _trait(name: str, tensor: Tensor) -> str:
    """Return a text that stays the same if layers are renamed, or if the model becomes a part of another model.

    The text consists of the last two steps of the name, all numbers in the name, the type and the shape.
    """
    end = ".".join(_STEPS.split(name)[-2:])
    return f"{end} {' '.join(_NUMBER.findall(name))} {_look(tensor)}"


def _look(tensor: Tensor) -> str:
    return f"{tensor.dtype.name if tensor.dtype is not None else None} {tensor.shape}"


def _occurrences(numbers: Sequence[int], names: Sequence[str]) -> list[tuple[str, int]]:
    """Return each name, and how often it occurred earlier in `names`, because several tensors may share a name."""
    met: dict[str, int] = {}
    found = list[tuple[str, int]]()
    for number in numbers:
        name = names[number]
        found.append((name, met.get(name, 0)))
        met[name] = met.get(name, 0) + 1
    return found


def delta_job(before: Tensor, after: Tensor, sample: int | None = None, most_runs: int = RUNS) -> Job[TensorDelta]:
    """Measure how far the elements of two tensors differ.

    Before the call, `ready` has to count the varints of both tensors. If the tensors have more than `sample`
    elements, at most `most_runs` evenly spread runs are compared. A `sample` of 0 compares all elements. Quantized
    tensors, and floats of different types, are compared as F32. Raise `Unsupported` for different shapes, and for all
    other pairs of different types.
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
    runs, repeated = runs_and_repeats(prod(one.shape), max(map(distinct_bytes, data)) // width, sample, most_runs)
    computed = 2 * width * sum(end - start for start, end in runs)
    check_budget(computed, sum(map(stored_bytes, data)), "set a lower `sample`")
    for start, end in runs:
        for first, last in slices_of(start, end, width):
            found.read(*data, first, last)
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
    """Return True if the elements of these two types are floats that have to be compared as F32."""
    if one is None or other is None or not (is_float(one) and is_float(other)):
        return False
    return one is not other or one.block is not None


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def move_job(
    before: Tensor | None,
    after: Tensor | None,
    sample: int | None,
    make_ready: Callable[[Tensor], Tensor],
    most_runs: int = _RUNS,
) -> Job[TensorMove]:
    """Return how far a tensor moved, measured on `sample` elements in at most `most_runs` runs.

    `before` or `after` is None for a tensor that was added or removed.
    """
    shown = after or before
    assert shown is not None
    change: Move
    delta: TensorDelta | None = None
    if before is None or after is None:
        change = "added" if before is None else "removed"
    elif (before.dtype, before.shape) != (after.dtype, after.shape):
        change = "reshaped"
    else:
        change = "renamed" if before.name != after.name else "compared"
        unreadable = any(isinstance(each.data, Unreadable) for each in (before, after))
        if after.size is not None and not unreadable:
            with suppress(ProtosliceError):  # a tensor that cannot be read is listed without numbers
                delta = yield from delta_job(make_ready(before), make_ready(after), sample, most_runs)
    return TensorMove(
        name=shown.name,
        address="" if after is None else after.address,
        was=None if before is None or after is None or before.name == after.name else before.name,
        was_address="" if before is None else before.address,
        dtype=shown.dtype.name if shown.dtype is not None else None,
        shape=shown.shape,
        size=shown.size,
        kind=shown.use.kind,
        layer=_layer_of(shown.name),
        change=change,
        delta=delta,
    )


def _layer_of(name: str) -> str:
    """Return a tensor's name up to the end of its first number, or, without a number, the first step of the name."""
    found = _LAYER.match(name)
    return found[0] if found else name


def runs_of(counts: Mapping[tuple[str, Kind], int]) -> Iterator[EqualTensors]:
    """Yield the counts of equal tensors by layer and kind. Consecutive layers with equal counts become one run."""
    runs: dict[tuple[str, int, Kind, int], EqualTensors] = {}
    for (layer, kind), count in counts.items():
        found = _PLAIN.fullmatch(layer)
        stem, number = (found[1], int(found[2])) if found else (layer, -1)
        before = runs.pop((stem, number - 1, kind, count), None) if number > 0 else None
        runs[stem, number, kind, count] = (
            replace(before, last=number) if before else EqualTensors(layer, None, kind, count)
        )
    yield from runs.values()

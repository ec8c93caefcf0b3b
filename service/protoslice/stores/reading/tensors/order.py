"""Order of the tensors of a store, and their totals in it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from protoslice.concurrency import Job
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.errors import InvalidInput
from protoslice.facts import Kind
from protoslice.stores.reading.tensors.groups import Totals, totals_of
from protoslice.tensors.listing import Tensors, natural
from protoslice.tensors.model import Tensor

_AT_ONCE: Final = 256
_MOST: Final = (1 << 63) - 1
"""Sizes and numbers of elements end here, for the same reason."""
_COLUMNS: Final = ("name", "dtype", "shape", "size")


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts that tensors are sorted by, by number: sizes and elements (-1 without), and data types."""

    sizes: array[int] = field(default_factory=lambda: array("q"))
    elements: array[int] = field(default_factory=lambda: array("q"))
    parameters: array[int] = field(default_factory=lambda: array("q"))
    dtypes: list[str] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)

    @property
    def columns(self) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[str], Sequence[Kind]]:
        """All facts."""
        return self.sizes, self.elements, self.parameters, self.dtypes, self.kinds

    def take(self, tensor: Tensor) -> None:
        """Add the facts of the next tensor."""
        self.sizes.append(-1 if tensor.size is None else min(tensor.size, _MOST))
        elements, (role, kind) = -1 if tensor.shape is None else min(prod(tensor.shape), _MOST), tensor.use
        self.elements.append(elements)
        self.parameters.append(max(elements, 0) if role == "weight" else 0)
        self.dtypes.append(tensor.dtype.name if tensor.dtype is not None else "")
        self.kinds.append(kind)


class TensorOrder:
    """The tensors of one store by number, sorted by some column; the last orders are kept."""

    def __init__(self, row: int, tags: Sequence[str] | None, results: Results, worker: Worker) -> None:
        self._row = row
        self._tags = tags
        self._results = results
        self._worker = worker

    async def by(self, found: Tensors, sort: str | None) -> Sequence[int]:
        """Numbers of the tensors `found` in the order of `sort`: a column, descending with `-` before it.

        None keeps the model's order; names are in natural order. `InvalidInput` for an unknown column.
        """
        if sort is None:
            return range(len(found))
        if sort.removeprefix("-") not in _COLUMNS:
            raise InvalidInput(
                f"Unknown sort column {sort[:40]!r}: use one of {', '.join(_COLUMNS)}, with '-' for descending"
            )
        key = (self._row, "order of tensors", self._tags, sort)
        return await self._results.get(key, lambda: self._made(found, sort), cancellable=True)

    async def totals(self, found: Tensors) -> Totals:
        """Return the tensors by name, with running totals in that order."""
        key = (self._row, "totals of tensors", self._tags)
        return await self._results.get(key, lambda: self._totalled(found), cancellable=True)

    async def elements(self, found: Tensors) -> Sequence[int]:
        """Return the numbers of elements of the tensors `found`, -1 where unknown."""
        return (await self._facts_of(found)).elements

    async def _totalled(self, found: Tensors) -> tuple[Totals, int]:
        order, facts = await self.by(found, "name"), await self._facts_of(found)
        totals = await self._worker.bulk(lambda: totals_of(order, *facts.columns))
        return totals, totals.weight

    async def _made(self, found: Tensors, sort: str) -> tuple[Sequence[int], int]:
        keys: Sequence[int] | Sequence[str]
        match sort.removeprefix("-"):
            case "name":
                keys = await self._names(found)
            case "dtype":
                keys = (await self._facts_of(found)).dtypes
            case "shape":
                keys = (await self._facts_of(found)).elements
            case _:
                keys = (await self._facts_of(found)).sizes
        order = await self._worker.bulk(
            lambda: array("q", sorted(range(len(keys)), key=keys.__getitem__, reverse=sort.startswith("-")))
        )
        return order, order.itemsize * len(order)

    async def _names(self, found: Tensors) -> list[str]:
        called, names = found.key, list[str]()
        await self._worker.finish(looks_job(lambda number: names.append(natural(called(number)[0])), range(len(found))))
        return names

    async def _facts_of(self, found: Tensors) -> _Facts:
        async def made() -> tuple[_Facts, int]:
            facts = _Facts()
            await self._worker.finish(looks_job(lambda number: facts.take(found[number]), range(len(found))))
            return facts, 40 * len(found)

        # A tensor is built from its message each time: once for all columns but the name, which costs less alone.
        return await self._results.get((self._row, "facts of tensors", self._tags), made, cancellable=True)


def looks_job(look: Callable[[int], object], numbers: Sequence[int]) -> Job[None]:
    """Call `look` for all `numbers`."""
    for at in range(0, len(numbers), _AT_ONCE):
        for number in numbers[at : at + _AT_ONCE]:
            look(number)
        yield

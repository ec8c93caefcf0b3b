"""Order of the tensors of a store, and their sizes in it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import CachedFlight
from protoslice.errors import InvalidInput
from protoslice.formats.model import Tensor, Tensors

_CACHED: Final = 8
_ROOM: Final = 16 << 20
_AT_ONCE: Final = 256
_SIZES: Final = "sums of sizes"
"""Key of the sums among the orders."""
_MOST_BYTES: Final = (1 << 64) - 1
"""Sums end here: a model may claim any sizes."""

_KEYS: Final[dict[str, Callable[[Tensor], tuple[int, str]]]] = {
    "name": lambda tensor: (0, tensor.name),
    "dtype": lambda tensor: (0, tensor.dtype.name if tensor.dtype is not None else ""),
    "shape": lambda tensor: (-1 if tensor.shape is None else prod(tensor.shape), ""),
    "size": lambda tensor: (-1 if tensor.size is None else tensor.size, ""),
}


class TensorOrder:
    """The tensors of one store by number, sorted by some column; the last orders are kept."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._sorted: CachedFlight[str, Sequence[int]] = CachedFlight(most=_CACHED, room=_ROOM, stops=True)

    @property
    def weight(self) -> int:
        """Bytes of the orders in memory."""
        return self._sorted.weight

    async def by(self, found: Tensors, sort: str | None) -> Sequence[int]:
        """Numbers of the tensors `found` in the order of `sort`: a column, descending with `-` before it.

        None keeps the model's order. `InvalidInput` for an unknown column.
        """
        if sort is None:
            return range(len(found))
        if sort.removeprefix("-") not in _KEYS:
            raise InvalidInput(f"{sort[:40]!r} is no column to sort by: there are {', '.join(_KEYS)}, - for descending")
        return await self._sorted.get(sort, lambda: self._made(found, sort))

    async def sizes(self, found: Tensors) -> tuple[Sequence[int], Sequence[int]]:
        """The tensors by name, and the bytes of all before each place of that order, and of all."""
        order = await self.by(found, "name")
        return order, await self._sorted.get(_SIZES, lambda: self._summed(found, order))

    async def _summed(self, found: Tensors, order: Sequence[int]) -> tuple[Sequence[int], int]:
        sums = array("Q", [0])
        async for some in self._worker.steps(_slices(found, _KEYS["size"], order)):
            for size, _ in some:
                sums.append(min(sums[-1] + max(size, 0), _MOST_BYTES))
        return sums, sums.itemsize * len(sums)

    async def _made(self, found: Tensors, sort: str) -> tuple[Sequence[int], int]:
        key, keys = _KEYS[sort.removeprefix("-")], list[tuple[int, str]]()
        async for some in self._worker.steps(_slices(found, key, range(len(found)))):
            keys += some
        order = await self._worker.bulk(
            lambda: array("q", sorted(range(len(keys)), key=keys.__getitem__, reverse=sort.startswith("-")))
        )
        return order, order.itemsize * len(order)


def _slices(
    found: Tensors, key: Callable[[Tensor], tuple[int, str]], order: Sequence[int]
) -> Iterator[list[tuple[int, str]]]:
    for at in range(0, len(order), _AT_ONCE):
        yield [key(found[number]) for number in order[at : at + _AT_ONCE]]

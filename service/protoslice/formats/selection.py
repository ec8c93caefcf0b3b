"""Which tensors of a model somebody means: by name, by address, by what is in a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.formats.model import Tensor, Tensors
from protoslice.formats.tensors.dtypes import DTYPES

__all__ = ["Wanted", "chosen", "each", "single", "wanted"]

_SHOWN: Final = 20
"""So many addresses are listed where a name is borne by several tensors."""

Wanted = Callable[[Tensor], bool]


def each(found: Tensors) -> Iterator[Tensor]:
    """All of them, in order."""
    return (found[number] for number in range(len(found)))


def wanted(name: str | None, dtype: str | None) -> Wanted:
    """Whether a tensor is of this name or address, and of this type; what is None does not matter."""
    if dtype is not None and dtype not in DTYPES:
        raise InvalidInput(f"there is no dtype {dtype[:40]!r}; there are: {', '.join(DTYPES)}")
    fits = _fitting(name) if name is not None else None

    def is_wanted(tensor: Tensor) -> bool:
        if dtype is not None and (tensor.dtype is None or tensor.dtype.name != dtype):
            return False
        return fits is None or fits(tensor)

    return is_wanted


def chosen(found: Tensors, names: Sequence[str]) -> list[Tensor]:
    """The tensors that any of `names` means, all where there are none; `NotFound` for one that means nothing."""
    if not names:
        return list(each(found))
    fitting = {name: _fitting(name) for name in names}
    kept = [tensor for tensor in each(found) if any(fits(tensor) for fits in fitting.values())]
    for name, fits in fitting.items():
        if not any(fits(tensor) for tensor in kept):
            raise NotFound(f"there is no tensor {name!r}")
    return kept


def single(found: Tensors, name: str) -> Tensor:
    """The one tensor of this name or address; `Conflict` where several are called so."""
    numbers = found.numbers(name)
    if not numbers:
        raise NotFound(f"there is no tensor {name!r}")
    if len(numbers) > 1:
        addresses = [found[number].address for number in numbers[:_SHOWN]]
        more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
        raise Conflict(f"{len(numbers)} tensors are called {name!r}: ask by address, {', '.join(addresses)}{more}")
    return found[numbers[0]]


def _fitting(name: str) -> Wanted:
    """Which tensors `name` means: those so called, the one of this address; `*` in it stands for anything in a name."""
    if "*" not in name:
        return lambda tensor: name in {tensor.name, tensor.address}
    first, *parts, last = name.split("*")
    return lambda tensor: _matches(tensor.name, first, parts, last)


def _matches(name: str, first: str, parts: Sequence[str], last: str) -> bool:
    """Whether `first`, each of `parts` and `last` stand in `name` one after the other.

    Each is taken where it comes first. A regular expression would try all places with all others.
    """
    at, end = len(first), len(name) - len(last)
    if at > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in parts:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True

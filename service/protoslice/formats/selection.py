"""Which tensors of a model somebody means: by name, by address, by what is in a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.formats.model import Tensor, Tensors
from protoslice.formats.tensors.dtypes import DTYPES

__all__ = ["Wanted", "chosen", "each", "naming", "pattern", "single", "wanted"]

_MOST_PATTERNS: Final = 64
_SLICE: Final = 1024
"""Names that one slice of work looks at: each is compared with every pattern."""
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


def naming(found: Tensors) -> Callable[[int], tuple[str, str]]:
    """What tells the name and the address of a tensor by its number; without making it, where that can be."""
    known: Callable[[int], tuple[str, str]] | None = getattr(found, "called", None)

    def made(number: int) -> tuple[str, str]:
        tensor = found[number]
        return tensor.name, tensor.address

    return known or made


def chosen(found: Tensors, names: Sequence[str]) -> Iterator[Sequence[int]]:
    """The numbers of the tensors that any of `names` means, slice by slice, in no order and some twice.

    `NotFound` for a name that means nothing, `InvalidInput` where more than a few
    have a `*`.
    """
    patterns = {name: pattern(name) for name in names if "*" in name}
    if len(patterns) > _MOST_PATTERNS:
        raise InvalidInput(f"at most {_MOST_PATTERNS} names may have a *: ask for fewer at a time")
    yield [number for name in names if "*" not in name for number in _exactly(found, name)]
    met: set[str] = set()
    for first in range(0, len(found), _SLICE) if patterns else ():
        yield _fitting_any(patterns, found, range(first, min(first + _SLICE, len(found))), met)
    for name in patterns.keys() - met:
        raise NotFound(f"there is no tensor {name!r}")


def _fitting_any(
    patterns: Mapping[str, Callable[[str], bool]], found: Tensors, numbers: Sequence[int], met: set[str]
) -> list[int]:
    """Those of `numbers` whose names fit any of `patterns`, the names of which are added to `met`."""
    called, kept = naming(found), list[int]()
    for number in numbers:
        name, _ = called(number)
        fitting = [text for text, fits in patterns.items() if fits(name)]
        met.update(fitting)
        if fitting:
            kept.append(number)
    return kept


def _exactly(found: Tensors, name: str) -> Sequence[int]:
    """The tensors that bear `name`, or the one whose address it is; `NotFound` where there is none."""
    called = naming(found)
    numbers = [number for number in found.numbers(name) if name in called(number)]
    if not numbers:
        raise NotFound(f"there is no tensor {name!r}")
    return numbers


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
    fits = pattern(name)
    return lambda tensor: fits(tensor.name)


def pattern(name: str) -> Callable[[str], bool]:
    """Whether a name is as `name` says, in which `*` stands for anything."""
    if "*" not in name:
        return lambda other: other == name
    first, *parts, last = name.split("*")
    return lambda name: _matches(name, first, parts, last)


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

"""Tensors by name, by address, by dtype and by patterns with `*`, and their facts as rows of listings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from protoslice.concurrency import Job
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.facts import TensorEntry
from protoslice.formats.model import Fault, Row, Tensor, TensorList, Tensors
from protoslice.formats.tensors.dtypes import DTYPES

_MOST_PATTERNS: Final = 64
_SLICE: Final = 1024
"""Names matched in one slice of work: each of them against all patterns."""
_LONGEST: Final = 200
"""Characters of a name that an error quotes."""
_SHOWN: Final = 20
"""Addresses that the error for an ambiguous name lists."""
_MOST_COMPARED: Final = 20_000
"""Names that are compared with one that does not exist."""
_SUGGESTED: Final = 3

_NUMBER: Final = re.compile("[0-9]+")
_MOST_DIGITS: Final = 31
"""Longer numbers are in the order of their digits; any number is before letters."""

Wanted = Callable[[Tensor], bool]


def natural(name: str) -> str:
    """Return a key that sorts `layer.2` before `layer.10`, and names with the same complete steps together."""
    return _NUMBER.sub(lambda found: chr(min(len(found[0]), _MOST_DIGITS)) + found[0], name)


def tags_of(text: str | None) -> list[str] | None:
    """Tags of a meta graph in `text`, which has commas between them; None for None."""
    return None if text is None else [tag for tag in text.split(",") if tag]


def wanted(name: str | None, dtype: str | None) -> Wanted:
    """A predicate for tensors of this name, address or pattern, and of this dtype; None matches any.

    `InvalidInput` for an unknown dtype.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InvalidInput(f"Unknown dtype {dtype[:40]!r}; use one of {', '.join(DTYPES)}")
    fits = _fitting(name) if name is not None else None

    def is_wanted(tensor: Tensor) -> bool:
        if dtype is not None and (tensor.dtype is None or tensor.dtype.name != dtype):
            return False
        return fits is None or fits(tensor)

    return is_wanted


def keys(found: TensorList[Row]) -> Iterator[str]:
    """Yield the names of all tensors, in order; the addresses of those whose name means several, or another one."""
    for number in range(len(found)):
        name, address = found.key(number)
        yield name if list(found.numbers(name)) == [number] else address


def chosen_job(found: Tensors, names: Sequence[str]) -> Job[Sequence[int]]:
    """Return the numbers of the tensors that match any of `names`, in order.

    `NotFound` for a name without a match, `InvalidInput` for more than 64 names with a `*`.
    """
    patterns = {name: pattern(name) for name in names if "*" in name}
    if len(patterns) > _MOST_PATTERNS:
        raise InvalidInput(f"At most {_MOST_PATTERNS} names may contain *: ask for fewer at a time")
    numbers = {number for name in names if "*" not in name for number in _exactly(found, name)}
    met: set[str] = set()
    for first in range(0, len(found), _SLICE) if patterns else ():
        yield
        numbers.update(_fitting_any(patterns, found, range(first, min(first + _SLICE, len(found))), met))
    for name in patterns.keys() - met:
        raise NotFound(no_tensor(name))
    return sorted(numbers)


def _fitting_any(
    patterns: Mapping[str, Callable[[str], bool]], found: Tensors, numbers: Sequence[int], met: set[str]
) -> list[int]:
    """The members of `numbers` whose names match any of `patterns`; adds the matching patterns to `met`."""
    kept = list[int]()
    for number in numbers:
        name, _ = found.key(number)
        fitting = [text for text, fits in patterns.items() if fits(name)]
        met.update(fitting)
        if fitting:
            kept.append(number)
    return kept


def _exactly(found: Tensors, name: str) -> Sequence[int]:
    """The numbers of tensors with the name or address `name`; `NotFound` if there is none."""
    numbers = [number for number in found.numbers(name) if name in found.key(number)]
    if not numbers:
        raise NotFound(no_tensor(name))
    return numbers


def single(found: Tensors, name: str) -> Tensor:
    """The one tensor of this name or address; `NotFound` if there is none, `Conflict` for several."""
    numbers = found.numbers(name)
    if not numbers:
        raise NotFound(no_tensor(name))
    if len(numbers) > 1:
        raise several(name, [found[number].address for number in numbers[: _SHOWN + 1]], len(numbers))
    return found[numbers[0]]


def no_tensor(name: object) -> str:
    """Return the message for a tensor that does not exist."""
    return f"No tensor {name[:_LONGEST] if isinstance(name, str) else name!r}"


def several(name: str, addresses: Sequence[str], count: int | None = None) -> Conflict:
    """Return the error for a name of several tensors, of which `addresses` are the first."""
    count = count or len(addresses)
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return Conflict(
        f"{count} tensors are named {name[:_LONGEST]!r}: use an address instead, such as "
        f"{', '.join(repr(address[:_LONGEST]) for address in addresses[:_SHOWN])}{more}"
    )


def _fitting(name: str) -> Wanted:
    """A predicate for tensors with `name` as name or address, or with a name that matches the `*` in it."""
    if "*" not in name:
        return lambda tensor: name in {tensor.name, tensor.address}
    fits = pattern(name)
    return lambda tensor: fits(tensor.name)


def pattern(name: str) -> Callable[[str], bool]:
    """A predicate for names that match `name`, in which `*` stands for any characters."""
    if "*" not in name:
        return lambda other: other == name
    first, *parts, last = name.split("*")
    return lambda name: _matches(name, first, parts, last)


def _matches(name: str, first: str, parts: Sequence[str], last: str) -> bool:
    """True when `name` is `first`, then each of `parts` in order, then `last`, with anything between them."""
    # Taking the leftmost place of each part is enough and linear; a regular expression would backtrack.
    at, end = len(first), len(name) - len(last)
    if at > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in parts:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a suggestion of names in `known` that contain `name` or are spelled like it; None without any."""
    names = list(dict.fromkeys(islice(known, _MOST_COMPARED)))
    folded = name.casefold()
    found = [each for each in names if folded and folded in each.casefold()]
    # Comparing spellings takes long: names of a quite different length are no typing errors.
    alike = [each for each in names if abs(len(each) - len(name)) <= max(3, len(name) // 4)]
    found = (found or get_close_matches(name, alike, _SUGGESTED, 0.7))[:_SUGGESTED]
    return f"did you mean {' or '.join(map(repr, found))}?" if found else None


_ALONE: Final = 120
_LENGTH: Final = 6
"""Bytes of JSON for an entry without its texts, and for each length in its shape."""


def entry_of(tensor: Tensor) -> TensorEntry:
    """The facts of `tensor` as a `TensorEntry`."""
    use = tensor.use
    return TensorEntry(
        name=tensor.name,
        address=tensor.address,
        dtype=tensor.dtype.name if tensor.dtype is not None else None,
        shape=tensor.shape,
        size=tensor.size,
        file=tensor.file,
        role=use.role,
        kind=use.kind,
        problem=str(tensor.data.error) if isinstance(tensor.data, Fault) else None,
    )


def entry_weight(entry: TensorEntry) -> int:
    """Return the bytes of JSON of `entry`, about."""
    texts = (entry.name, entry.address, entry.file or "", entry.problem or "")
    return _ALONE + sum(map(len, texts)) + _LENGTH * len(entry.shape or ())


def row(tensor: Tensor) -> dict[str, Any]:
    """The facts of `tensor` as members of a JSON object, `problem` only if there is one."""
    entry = entry_of(tensor)
    shown = {name: getattr(entry, name) for name in TensorEntry.__slots__}
    if shown["problem"] is None:
        del shown["problem"]
    return shown

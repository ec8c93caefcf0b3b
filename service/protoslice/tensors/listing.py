"""Lists of a model's tensors, look-ups by name, address, dtype and pattern, and rows for listings."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from protoslice.concurrency import Job
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.facts import TensorEntry
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Tensor, Unreadable

_COMPARED: Final = 64
"""Largest number of entries with one hash that are compared with the key.

If there are more, equal hashes mean equal keys.
"""

_MOST_PATTERNS: Final = 64
_SLICE: Final = 1024
"""The names that one slice of work matches against all patterns."""
_LONGEST: Final = 200
"""Largest number of characters of a name that an error quotes."""
_SHOWN: Final = 20
"""Largest number of addresses that the error for an ambiguous name lists."""
_MOST_COMPARED: Final = 20_000
"""Largest number of names that are compared with an unknown name to make suggestions."""
_SUGGESTED: Final = 3

_NUMBER: Final = re.compile("[0-9]+")
_MOST_DIGITS: Final = 31
"""The number of digits up to which longer numbers sort after shorter numbers.

Numbers with more digits are sorted digit by digit. All numbers sort before letters.
"""


class Named(Protocol):
    """A tensor, or the facts about a tensor."""

    @property
    def name(self) -> str:
        """The name. Several tensors may share a name."""

    @property
    def address(self) -> str:
        """The address, which is unique in the model."""


Row = TypeVar("Row", bound=Named)


class HashIndex:
    """An index from keys to their numbers. It holds hashes instead of keys, and takes 16 to 24 bytes per key."""

    def __init__(self, keys: Iterable[str], count: int) -> None:
        """Build the index of `keys`, which are at most `count` keys."""
        self._mask = (1 << count.bit_length()) - 1
        self._first = array("I", bytes(4 * (self._mask + 1)))
        self._next = array("I")
        self._hashes = array("q")
        for number, key in enumerate(keys):
            found = hash(key)
            slot = found & self._mask
            self._hashes.append(found)
            self._next.append(self._first[slot])
            self._first[slot] = number + 1

    def find(self, key: str) -> list[int]:
        """Return the ascending numbers of all keys with the hash of `key`. Callers must compare the keys."""
        wanted, found = hash(key), list[int]()
        at = self._first[wanted & self._mask]
        while at:
            if self._hashes[at - 1] == wanted:
                found.append(at - 1)
            at = self._next[at - 1]
        return found[::-1]


class TensorList(Sequence[Row]):
    """A list of a model's tensors, or of facts about them, in the model's order.

    Tensors are built on access, and can be found by name or address. A tensor takes a few bytes of memory until it is
    built.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], Row],
        key: Callable[[int], tuple[str, str]] | None = None,
        numbers: Callable[[str], Sequence[int]] | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take `make`, which builds the tensor with a given number, and `key`, which returns only its name and address.

        `key` should cost less than `make`. `numbers` finds tensors by name or address; it replaces the built-in index.
        All functions must be thread-safe. `metadata` holds the texts that the files contain besides tensors, by key.
        """
        self.metadata = metadata
        self._count = count
        self._make = make
        self._key = key
        self._numbers = numbers

    @classmethod
    def of(cls, rows: Sequence[Row]) -> TensorList[Row]:
        """Return a list of finished tensors."""
        return TensorList(len(rows), rows.__getitem__)

    @classmethod
    def joined(
        cls, parts: Sequence[TensorList[Row]], metadata: Mapping[str, str] = MappingProxyType({})
    ) -> TensorList[Row]:
        """Return the tensors of all `parts`, in order."""
        starts = list(accumulate(map(len, parts), initial=0))

        def place(number: int) -> tuple[TensorList[Row], int]:
            part = bisect_right(starts, number) - 1
            return parts[part], number - starts[part]

        def make(number: int) -> Row:
            part, number = place(number)
            return part[number]

        def key(number: int) -> tuple[str, str]:
            part, number = place(number)
            return part.key(number)

        def numbers(name: str) -> Sequence[int]:
            found = zip(starts, parts, strict=False)
            return [start + number for start, part in found for number in part.numbers(name)]

        indexed = all(part._numbers is None for part in parts)
        return TensorList(starts[-1], make, key, None if indexed else numbers, metadata)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, range(self._count))

    def __getitem__(self, number: int, /) -> Row:  # type: ignore[override]  # no slices
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._make(number)

    def key(self, number: int) -> tuple[str, str]:
        """Return the name and the address of the tensor with this number."""
        if self._key is not None:
            return self._key(number)
        row = self._make(number)
        return row.name, row.address

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """Return the number of the tensor with this address.

        If no tensor has this address, return the numbers of all tensors with this name, of which there may be none.
        """
        if self._numbers is not None:
            return self._numbers(name_or_address)
        found = self._index.find(name_or_address)
        if len(found) <= _COMPARED:
            found = [entry for entry in found if self.key(entry // 2)[entry % 2] == name_or_address]
        addressed = [entry // 2 for entry in found if entry % 2]
        return addressed[-1:] or [entry // 2 for entry in found]

    @cached_property
    def _index(self) -> HashIndex:
        """The index of names and addresses. Tensor n has its name under number 2n, and its address under 2n + 1."""
        return HashIndex((each for number in range(self._count) for each in self.key(number)), 2 * self._count)


Tensors = TensorList[Tensor]


Wanted = Callable[[Tensor], bool]


def natural(name: str) -> str:
    """Return a sort key for `name` that puts `layer.2` before `layer.10`, and keeps the tensors of a layer together."""
    return _NUMBER.sub(lambda found: chr(min(len(found[0]), _MOST_DIGITS)) + found[0], name)


def tags_of(text: str | None) -> list[str] | None:
    """Return the meta graph's tags in `text`, which are separated by commas; None if `text` is None."""
    return None if text is None else [tag for tag in text.split(",") if tag]


def wanted(name: str | None, dtype: str | None) -> Wanted:
    """Return a predicate that matches tensors by name and dtype. None matches any name or any dtype.

    `name` may be a name, an address or a pattern. Raise `InvalidInput` for an unknown dtype.
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
    """Yield the name of each tensor in order, or its address if several tensors share the name."""
    for number in range(len(found)):
        name, address = found.key(number)
        yield name if list(found.numbers(name)) == [number] else address


def chosen_job(found: Tensors, names: Sequence[str]) -> Job[Sequence[int]]:
    """Return the sorted numbers of the tensors that match any of `names`.

    Raise `NotFound` for a name without a match, and `InvalidInput` for more than 64 names with a `*`.
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
    """Return the `numbers` of tensors whose names match any of `patterns`. Add each matched pattern to `met`."""
    kept = list[int]()
    for number in numbers:
        name, _ = found.key(number)
        fitting = [text for text, fits in patterns.items() if fits(name)]
        met.update(fitting)
        if fitting:
            kept.append(number)
    return kept


def _exactly(found: Tensors, name: str) -> Sequence[int]:
    """Return the numbers of the tensors with the name or address `name`; raise `NotFound` if there is none."""
    numbers = [number for number in found.numbers(name) if name in found.key(number)]
    if not numbers:
        raise NotFound(no_tensor(name))
    return numbers


def single(found: Tensors, name: str) -> Tensor:
    """Return the only tensor with this name or address.

    Raise `NotFound` if there is none, and `Conflict` if several tensors share the name.
    """
    numbers = found.numbers(name)
    if not numbers:
        raise NotFound(no_tensor(name))
    if len(numbers) > 1:
        raise several(name, [found[number].address for number in numbers[: _SHOWN + 1]], len(numbers))
    return found[numbers[0]]


def no_tensor(name: object) -> str:
    """Return the error message for a tensor that does not exist."""
    return f"No tensor {name[:_LONGEST] if isinstance(name, str) else name!r}"


def several(name: str, addresses: Sequence[str], count: int | None = None) -> Conflict:
    """Return the error for a name that `count` tensors share. `addresses` holds the first of their addresses."""
    count = count or len(addresses)
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return Conflict(
        f"{count} tensors are named {name[:_LONGEST]!r}: use an address instead, such as "
        f"{', '.join(repr(address[:_LONGEST]) for address in addresses[:_SHOWN])}{more}"
    )


def _fitting(name: str) -> Wanted:
    """Return a predicate for tensors with the name or address `name`. A `name` with `*` is a pattern for names only."""
    if "*" not in name:
        return lambda tensor: name in {tensor.name, tensor.address}
    fits = pattern(name)
    return lambda tensor: fits(tensor.name)


def pattern(name: str) -> Callable[[str], bool]:
    """Return a predicate for names that match `name`, where `*` matches any characters."""
    if "*" not in name:
        return lambda other: other == name
    first, *parts, last = name.split("*")
    return lambda name: _matches(name, first, parts, last)


def _matches(name: str, first: str, parts: Sequence[str], last: str) -> bool:
    """Return True when `name` consists of `first`, each of `parts` in order, and `last`, with any text in between."""
    # Taking the leftmost match of each part is correct and takes linear time; a regular expression would backtrack.
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
    """Return a suggestion of `known` names that contain `name` or resemble its spelling; None if there are none."""
    names = list(dict.fromkeys(islice(known, _MOST_COMPARED)))
    folded = name.casefold()
    found = [each for each in names if folded and folded in each.casefold()]
    # Comparing spellings is slow. Names of very different length are skipped, because they are no typing errors.
    alike = [each for each in names if abs(len(each) - len(name)) <= max(3, len(name) // 4)]
    found = (found or get_close_matches(name, alike, _SUGGESTED, 0.7))[:_SUGGESTED]
    return f"did you mean {' or '.join(map(repr, found))}?" if found else None


def entry_of(tensor: Tensor) -> TensorEntry:
    """Return the facts about `tensor` as a `TensorEntry`."""
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
        problem=str(tensor.data.error) if isinstance(tensor.data, Unreadable) else None,
    )


def row(tensor: Tensor) -> dict[str, Any]:
    """Return the facts about `tensor` as a JSON object. It has the member `problem` only if there is a problem."""
    entry = entry_of(tensor)
    shown = {name: getattr(entry, name) for name in TensorEntry.__slots__}
    if shown["problem"] is None:
        del shown["problem"]
    return shown


class UniqueNames:
    """A collector of tensor names. Once all names are known, it makes a unique label for each tensor."""

    def __init__(self, reserved: Collection[str] = ()) -> None:
        """Set `reserved`, the labels that no tensor may get."""
        self._reserved = frozenset(reserved)
        self._names: list[str] = []
        self._addresses: list[str | None] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, tensor: Tensor) -> None:
        """Append the name and the address of `tensor`."""
        self._names.append(tensor.name)
        self._addresses.append(None if tensor.address == f"path:{tensor.name}" else tensor.address)

    def labels(self) -> Iterator[str]:
        """Yield a unique label for each tensor. Every label can be encoded in UTF-8.

        The label is the name, or the address if the name is shared or reserved.
        """
        counts = Counter(self._names)
        taken = {*self._reserved, *counts}
        for name, address in zip(self._names, self._addresses, strict=True):
            label = name
            if counts[name] > 1 or name in self._reserved or _spelled(name) != name:
                label = _spelled(f"path:{name}" if address is None else address)
                while label in taken:
                    label += "'"
                taken.add(label)
            yield label


def _spelled(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()

"""The tensors of a model by number, name, address, dtype and pattern, and their facts as rows of listings."""

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
"""Entries of one hash that are compared with the key; beyond, equal hashes count as equal keys."""

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


class Named(Protocol):
    """A tensor, or the facts of one."""

    @property
    def name(self) -> str:
        """Name, which may be shared by several tensors."""

    @property
    def address(self) -> str:
        """Unique in the model."""


Row = TypeVar("Row", bound=Named)


class HashIndex:
    """Index from keys to their numbers, without the keys: 16 to 24 bytes per key."""

    def __init__(self, keys: Iterable[str], count: int) -> None:
        """Build the index of `keys`, at most `count` of them."""
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
        """Return the numbers of all keys with the hash of `key`, ascending; callers compare the keys."""
        wanted, found = hash(key), list[int]()
        at = self._first[wanted & self._mask]
        while at:
            if self._hashes[at - 1] == wanted:
                found.append(at - 1)
            at = self._next[at - 1]
        return found[::-1]


class TensorList(Sequence[Row]):
    """The tensors of a model, or their facts, in its order: built on access, and found by name or address.

    Each tensor takes a few bytes of memory until it is built.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], Row],
        key: Callable[[int], tuple[str, str]] | None = None,
        numbers: Callable[[str], Sequence[int]] | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take `make`, which builds a tensor by number, and `key`, which returns its name and address at less cost.

        `numbers` replaces the index of names and addresses. All functions must be thread-safe. `metadata` are texts by
        key that the files have in addition to the tensors.
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
        """Return name and address of tensor `number`."""
        if self._key is not None:
            return self._key(number)
        row = self._make(number)
        return row.name, row.address

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """Return the number of the tensor with that address, else the numbers of all with that name; may be empty."""
        if self._numbers is not None:
            return self._numbers(name_or_address)
        found = self._index.find(name_or_address)
        if len(found) <= _COMPARED:
            found = [entry for entry in found if self.key(entry // 2)[entry % 2] == name_or_address]
        addressed = [entry // 2 for entry in found if entry % 2]
        return addressed[-1:] or [entry // 2 for entry in found]

    @cached_property
    def _index(self) -> HashIndex:
        """Hashes of names under even numbers and of addresses under odd ones: 2n and 2n + 1 for tensor n."""
        return HashIndex((each for number in range(self._count) for each in self.key(number)), 2 * self._count)


Tensors = TensorList[Tensor]


Wanted = Callable[[Tensor], bool]


def natural(name: str) -> str:
    """Return a key that sorts `layer.2` before `layer.10`, and names with the same complete steps together."""
    return _NUMBER.sub(lambda found: chr(min(len(found[0]), _MOST_DIGITS)) + found[0], name)


def tags_of(text: str | None) -> list[str] | None:
    """Return the tags of a meta graph in `text`, which has commas between them; None for None."""
    return None if text is None else [tag for tag in text.split(",") if tag]


def wanted(name: str | None, dtype: str | None) -> Wanted:
    """Return a predicate for tensors of this name, address or pattern, and of this dtype; None matches any.

    Raise `InvalidInput` for an unknown dtype.
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
    """Yield the names of all tensors, in order; the address where a name is ambiguous."""
    for number in range(len(found)):
        name, address = found.key(number)
        yield name if list(found.numbers(name)) == [number] else address


def chosen_job(found: Tensors, names: Sequence[str]) -> Job[Sequence[int]]:
    """Return the numbers of the tensors that match any of `names`, in order.

    Raise `NotFound` for a name without a match, `InvalidInput` for more than 64 names with a `*`.
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
    """Return the members of `numbers` whose names match any of `patterns`; add the matching patterns to `met`."""
    kept = list[int]()
    for number in numbers:
        name, _ = found.key(number)
        fitting = [text for text, fits in patterns.items() if fits(name)]
        met.update(fitting)
        if fitting:
            kept.append(number)
    return kept


def _exactly(found: Tensors, name: str) -> Sequence[int]:
    """Return the numbers of tensors with the name or address `name`; raise `NotFound` if there is none."""
    numbers = [number for number in found.numbers(name) if name in found.key(number)]
    if not numbers:
        raise NotFound(no_tensor(name))
    return numbers


def single(found: Tensors, name: str) -> Tensor:
    """Return the one tensor of this name or address; raise `NotFound` if there is none, `Conflict` for several."""
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
    """Return a predicate for tensors with `name` as name or address, or with a name that matches the `*` in it."""
    if "*" not in name:
        return lambda tensor: name in {tensor.name, tensor.address}
    fits = pattern(name)
    return lambda tensor: fits(tensor.name)


def pattern(name: str) -> Callable[[str], bool]:
    """Return a predicate for names that match `name`, in which `*` matches any characters."""
    if "*" not in name:
        return lambda other: other == name
    first, *parts, last = name.split("*")
    return lambda name: _matches(name, first, parts, last)


def _matches(name: str, first: str, parts: Sequence[str], last: str) -> bool:
    """Return True when `name` is `first`, then each of `parts` in order, then `last`, with anything between them."""
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


def entry_of(tensor: Tensor) -> TensorEntry:
    """Return the facts of `tensor` as a `TensorEntry`."""
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
    """Return the facts of `tensor` as members of a JSON object, `problem` only if there is one."""
    entry = entry_of(tensor)
    shown = {name: getattr(entry, name) for name in TensorEntry.__slots__}
    if shown["problem"] is None:
        del shown["problem"]
    return shown


class UniqueNames:
    """Names of tensors in order, and a unique label for each once all are known."""

    def __init__(self, reserved: Collection[str] = ()) -> None:
        """Take `reserved`, labels that no tensor gets."""
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
        """Yield a unique label per tensor, encodable in UTF-8: the name, or the address where the name is shared."""
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

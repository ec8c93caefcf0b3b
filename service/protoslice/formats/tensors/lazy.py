"""Tensors built on access and found by name; each takes a few bytes of memory until then."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

from protoslice.formats.model import Tensor

_COMPARED: Final = 64
"""Entries of one hash that are compared with the key; beyond, equal hashes count as equal keys."""


class HashIndex:
    """Index from keys to their numbers without the keys themselves: 16 to 24 bytes per key."""

    def __init__(self, keys: Iterable[str], count: int) -> None:
        """Index of `keys`, at most `count` of them."""
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
        """The numbers of all keys with the hash of `key`, ascending; callers compare the keys."""
        wanted, found = hash(key), list[int]()
        at = self._first[wanted & self._mask]
        while at:
            if self._hashes[at - 1] == wanted:
                found.append(at - 1)
            at = self._next[at - 1]
        return found[::-1]


class LazyTensors:
    """`Tensors` that builds each tensor on access."""

    def __init__(
        self,
        count: int,
        make: Callable[[int], Tensor],
        called: Callable[[int], tuple[str, str]] | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`make` builds a tensor by number; `called` gives its name and address at less cost.

        Both must be thread-safe. `metadata` are texts by key that the files have in addition to the tensors.
        """
        self.metadata = metadata
        self._count = count
        self._make = make
        self._naming = called or self._told

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Tensor]:
        return (self._make(number) for number in range(self._count))

    def __getitem__(self, number: int, /) -> Tensor:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._make(number)

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """The number of the tensor with that address, else of all with that name; empty if there is none."""
        found = self._index.find(name_or_address)
        if len(found) <= _COMPARED:
            found = [entry for entry in found if self.called(entry // 2)[entry % 2] == name_or_address]
        addressed = [entry // 2 for entry in found if entry % 2]
        return addressed[-1:] or [entry // 2 for entry in found]

    @cached_property
    def _index(self) -> HashIndex:
        """Hashes of names under even numbers and of addresses under odd ones: 2n and 2n + 1 for tensor n."""
        return HashIndex((each for number in range(self._count) for each in self.called(number)), 2 * self._count)

    def called(self, number: int) -> tuple[str, str]:
        """Name and address of tensor `number`."""
        return self._naming(number)

    def _told(self, number: int) -> tuple[str, str]:
        tensor = self._make(number)
        return tensor.name, tensor.address

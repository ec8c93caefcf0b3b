"""Choices of records: by number, range, key or chance, and the part of each that is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from protoslice.errors import InvalidInput, NotFound
from protoslice.streams.keys import KeyIndex

MOST_SAMPLED: Final = 10_000
"""Records of a sample, at most."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The part of each record that is given out; by default all of it."""

    path: str = ""
    fields: tuple[str, ...] = ()
    """Paths below `path` that are kept; empty for all."""
    omit_larger_than: int | None = None
    """Size in bytes of fields that are left out above it."""

    def params(self) -> list[tuple[str, str]]:
        """The part as parameters of a query."""
        omit = [] if self.omit_larger_than is None else [("omit_larger_than", str(self.omit_larger_than))]
        return [*([("path", self.path)] if self.path else []), *(("fields", each) for each in self.fields), *omit]


WHOLE: Final = RecordPart()


@dataclass(frozen=True, slots=True)
class RecordChoice:
    """Records that are given out: a range, then those of numbers, of keys, of a sample; by default all."""

    range: str | None = None
    numbers: tuple[int, ...] = ()
    key: str | None = None
    """Path of the field that `values` are looked up in."""
    values: tuple[str, ...] = ()
    sample: int | None = None
    """Number of records that are drawn at random."""
    seed: int = 0

    def check(self) -> None:
        """Raise `InvalidInput` for a key without a value, a value without a key, and for too large a sample."""
        if (self.key is None) != (not self.values):
            raise InvalidInput("Pass both key= (the path of a field) and value=, or neither")
        if self.sample is not None and not 0 <= self.sample <= MOST_SAMPLED:
            raise InvalidInput(f"Invalid sample: at most {MOST_SAMPLED} records")

    def params(self) -> list[tuple[str, str]]:
        """Return the choice as parameters of a query; services of older versions know `slice` as `range` alone."""
        given = {"range": self.range, "key": self.key, "sample": self.sample, "seed": self.seed or None}
        return [
            *((name, str(value)) for name, value in given.items() if value is not None),
            *([("n", ",".join(map(str, self.numbers)))] if self.numbers else []),
            *(("value", value) for value in self.values),
        ]

    def ranges(self, count: int, index: KeyIndex | None) -> Sequence[tuple[int, int]]:
        """Ranges chosen among `count` records; `NotFound` for a value that is not in `index`.

        `LimitExceeded` for values of more records than `index` gives at a time.
        """
        numbers = list(self.numbers)
        of_values = [] if index is None else index.numbers(self.values)
        for value, found in zip(self.values, of_values, strict=True):
            if not found:
                raise NotFound(f"No record has the value {value[:80]!r} in field {self.key}")
            numbers += found
        if self.sample is not None:
            numbers += sorted(Random(self.seed).sample(range(count), min(self.sample, count)))
        ranges = [(number, number + 1) for number in numbers]
        if self.range is not None or not (numbers or self.sample is not None):
            ranges.insert(0, _range(self.range or ":", count))
        return ranges


def _range(text: str, count: int) -> tuple[int, int]:
    """Start and stop of a range such as `10:20`, cut to `count`; `InvalidInput` for anything else."""
    start, colon, stop = text.partition(":")
    if not colon or not all(
        part == "" or (part.isascii() and part.isdigit() and len(part) < 19) for part in (start, stop)
    ):
        raise InvalidInput(f"Invalid range {text[:40]!r}: use 10:20, 10: or :20")
    last = min(int(stop or count), count)
    return min(int(start or 0), last), last

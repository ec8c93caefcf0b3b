"""Resolution of shard names: a folder, a pattern or `name@8` becomes an ordered list of files without gaps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import count, islice
from typing import Final

from protoslice.errors import InvalidInput, LimitExceeded, NotFound

MOST_SHARDS: Final = 4096
"""Largest number of shards of one stream."""
_SHARD: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{1,18})-of-(?P<count>\d{1,18})(?P<ending>(?:\.\w+)*)", re.DOTALL)
_NAMED: Final = re.compile(r"(?P<stem>.*)@(?P<count>\d{1,18}|\*)(?P<ending>(?:\.\w+)*)", re.DOTALL)
_SAID: Final = 3
_LONGEST: Final = 1024
"""Largest number of bytes of a pattern. Paths have the same limit."""
_BRACKETS: Final = 32
"""Largest number of brackets of a pattern. Translating a pattern takes time quadratic in their number."""


@dataclass(frozen=True, slots=True)
class ShardSet:
    """The common name of a stream's shards."""

    stem: str
    count: int
    ending: str

    def __str__(self) -> str:
        return f"{self.stem}@{self.count}{self.ending}"


def is_pattern(name: str) -> bool:
    """Return True when `name` means several shards: `name@8`, `name@*` and patterns with `*`, `?` or `[`."""
    return _NAMED.fullmatch(name) is not None or any(sign in name for sign in "*?[")


def shards_among(paths: Iterable[str], wanted: str | None = None) -> Sequence[str]:
    """Return the `paths` that the name or pattern `wanted` means, in order. None means the only set of shards.

    Raise `NotFound` if shards are missing, and `InvalidInput` if there is no set of shards or several sets. The error
    message names the shards or sets. Raise `LimitExceeded` for more than 4096 shards.
    """
    named = None if wanted is None else _NAMED.fullmatch(wanted)
    if wanted is not None and named is None:
        if len(wanted.encode(errors="surrogatepass")) > _LONGEST or wanted.count("[") > _BRACKETS:
            raise InvalidInput(
                f"The pattern {wanted[:64]!r} is too long: at most {_LONGEST} bytes and {_BRACKETS} brackets"
            )
        fits = re.compile(translate(wanted)).match  # fnmatchcase would cache up to 32 768 patterns
        found = sorted(filter(fits, paths))
        if not found:
            raise NotFound(f"No file matches {wanted}")
        return _complete(found)
    sets = _sets(paths)
    fitting = [each for each in sorted(sets, key=str) if named is None or _fits(each, named)]
    if not fitting and named is not None and named["count"] != "*":
        fitting, sets = [ShardSet(named["stem"], int(named["count"]), named["ending"])], {}
    if len(fitting) != 1:
        what = "no shards with names such as train-00000-of-00008" if not fitting else "several sets of shards"
        raise InvalidInput(
            f"The folder contains {what}{': choose one of ' if fitting else ''}{_some(map(str, fitting))}"
        )
    return _whole(fitting[0], sets.get(fitting[0], {}))


def name_of(paths: Sequence[str], wanted: str | None = None) -> str:
    """Return the common name of the shards `paths`, such as `train@8`.

    If they have no common name, return the pattern `wanted`, or the first path without a pattern.
    """
    sets = _sets(paths)
    if len(sets) == 1 and sum(map(len, sets.values())) == len(paths):
        return str(next(iter(sets)))
    return wanted or paths[0]


def _complete(found: Sequence[str]) -> Sequence[str]:
    """Return the paths that match a pattern, in order. If all are shards of one set, check that none is missing."""
    sets = _sets(found)
    if len(sets) == 1 and sum(map(len, sets.values())) == len(found):
        return _whole(*next(iter(sets.items())))
    return _bounded(found)


def _sets(paths: Iterable[str]) -> dict[ShardSet, dict[int, str]]:
    """Return the shards among `paths`, by their set and then by their number."""
    sets: dict[ShardSet, dict[int, str]] = {}
    for path in paths:
        if shard := _SHARD.fullmatch(path):
            key = ShardSet(shard["stem"], int(shard["count"]), shard["ending"])
            sets.setdefault(key, {})[int(shard["number"])] = path
    return sets


def _fits(shards: ShardSet, named: re.Match[str]) -> bool:
    same = (shards.stem, shards.ending) == (named["stem"], named["ending"])
    return same and named["count"] in {"*", str(shards.count)}


def _whole(shards: ShardSet, found: Mapping[int, str]) -> Sequence[str]:
    if len(found) < shards.count:
        missing = islice((number for number in count() if number not in found), _SAID)
        names = (f"{shards.stem}-{number:05}-of-{shards.count:05}{shards.ending}" for number in missing)
        raise NotFound(
            f"{shards} is missing {shards.count - len(found)} of its shards: "
            f"{_some(name for name, _ in zip(names, range(shards.count - len(found)), strict=False))}"
        )
    if max(found) >= shards.count:
        raise InvalidInput(f"{shards} has a shard whose number is too high, {max(found)}: {found[max(found)]}")
    return _bounded([found[number] for number in sorted(found)])


def _bounded(paths: Sequence[str]) -> Sequence[str]:
    if len(paths) > MOST_SHARDS:
        raise LimitExceeded(f"{len(paths)} shards are too many: at most {MOST_SHARDS} can be read as one stream")
    return paths


def _some(names: Iterable[str]) -> str:
    first = list(islice(names, _SAID + 1))
    return ", ".join(name[:80] for name in first[:_SAID]) + (" …" if len(first) > _SAID else "")

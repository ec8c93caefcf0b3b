"""Suggestions for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

_MOST: Final = 20_000
"""Names that are looked at."""
_SHOWN: Final = 3


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a suggestion of names in `known` that contain `name` or are spelled like it; None without any."""
    names = list(dict.fromkeys(islice(known, _MOST)))
    folded = name.casefold()
    found = [each for each in names if folded and folded in each.casefold()]
    # Comparing spellings takes long: names of a quite different length are no typing errors.
    alike = [each for each in names if abs(len(each) - len(name)) <= max(3, len(name) // 4)]
    found = (found or get_close_matches(name, alike, _SHOWN, 0.7))[:_SHOWN]
    return f"did you mean {' or '.join(map(repr, found))}?" if found else None

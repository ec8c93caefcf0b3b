"""Reports on tensors or files that an output leaves out, as a message and as a response header."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self
from urllib.parse import quote, unquote

from protoslice.errors import Unsupported

HEADER: Final = "protoslice-omitted"
"""The header of responses that leave out tensors or files."""
MOST_NAMED: Final = 10
_LONGEST: Final = 100
"""Largest number of characters of a name that are shown."""
_PARTS: Final = re.compile(r'count=([0-9]{1,18}), names=\(([!#-\[\]-~" ]*)\)')


@dataclass(frozen=True, slots=True)
class Omitted:
    """The tensors that an output leaves out, or the files that an archive leaves out."""

    count: int
    names: tuple[str, ...]
    """The first ten names, each cut to a hundred characters."""
    what: str = "tensor"

    @classmethod
    def of(cls, count: int, names: Iterable[str], *, what: str = "tensor") -> Self | None:
        """Make the report on `count` omitted items, whose names are `names`; return None if `count` is 0."""
        return cls(count, tuple(name[:_LONGEST] for name in islice(names, MOST_NAMED)), what) if count else None

    def __str__(self) -> str:
        more = self.count - len(self.names)
        listed = ", ".join(map(repr, self.names)) + (f" and {more} more" if more else "")
        return f"{self.count} {self.what}{'' if self.count == 1 else 's'} left out: {listed}"

    def header(self) -> str:
        """Return the value of the header, a dictionary of structured fields (RFC 9651). Names are percent-encoded."""
        names = " ".join(f'"{quote(name, safe="/:", errors="backslashreplace")}"' for name in self.names)
        return f"count={self.count}, names=({names})"

    @classmethod
    def parse(cls, header: str | None, *, what: str = "tensor") -> Self | None:
        """Parse a value that the method `header` returned. Return None for None and for a malformed value."""
        found = _PARTS.fullmatch(header or "")
        if found is None:
            return None
        names = (unquote(name.strip('"')) for name in found[2].split())
        return cls.of(int(found[1]), names, what=what)


def refuse(omitted: Omitted | None, strict: bool) -> None:
    """Raise `Unsupported` if `strict` is set and the output leaves out anything."""
    if strict and omitted is not None:
        raise Unsupported(
            f"the output would be incomplete, which `strict` forbids: {omitted}; for the reasons, see `tensor "
            "--json` or /tensors"
        )

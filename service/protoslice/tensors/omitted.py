"""Items that an output leaves out: their number and first names, in messages and in a header."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self
from urllib.parse import quote, unquote

from protoslice.errors import Unsupported

HEADER: Final = "protoslice-omitted"
"""Header of responses that leave something out."""
MOST_NAMED: Final = 10
_LONGEST: Final = 100
"""Characters of a name that are shown."""
_PARTS: Final = re.compile(r'count=([0-9]{1,18}), names=\(([!#-\[\]-~" ]*)\)')


@dataclass(frozen=True, slots=True)
class Omitted:
    """Tensors that an output leaves out, or files that an archive leaves out."""

    count: int
    names: tuple[str, ...]
    """The first ten names, cut to a hundred characters."""
    what: str = "tensor"

    @classmethod
    def of(cls, count: int, names: Iterable[str], *, what: str = "tensor") -> Self | None:
        """Return the `count` tensors whose names are `names`; None if there are none."""
        return cls(count, tuple(name[:_LONGEST] for name in islice(names, MOST_NAMED)), what) if count else None

    def __str__(self) -> str:
        more = self.count - len(self.names)
        listed = ", ".join(map(repr, self.names)) + (f" and {more} more" if more else "")
        return f"{self.count} {self.what}{'' if self.count == 1 else 's'} left out: {listed}"

    def header(self) -> str:
        """Return the value of the header: a dictionary of structured fields (RFC 9651), names percent-encoded."""
        names = " ".join(f'"{quote(name, safe="/:", errors="backslashreplace")}"' for name in self.names)
        return f"count={self.count}, names=({names})"

    @classmethod
    def parse(cls, header: str | None, *, what: str = "tensor") -> Self | None:
        """Return the value that `header` made; None if there is none, or for one that does not parse."""
        found = _PARTS.fullmatch(header or "")
        if found is None:
            return None
        names = (unquote(name.strip('"')) for name in found[2].split())
        return cls.of(int(found[1]), names, what=what)


def refuse(omitted: Omitted | None, strict: bool) -> None:
    """Raise `Unsupported` if `strict` is set and anything is left out."""
    if strict and omitted is not None:
        raise Unsupported(
            f"the output would be incomplete, which `strict` forbids: {omitted}; for the reasons, see `tensor "
            "--json` or /tensors"
        )

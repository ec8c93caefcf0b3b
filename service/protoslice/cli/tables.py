"""Output: tables and trees for people, one JSON document for programs; nothing steers a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TextIO
from unicodedata import category

from protoslice.errors import InvalidInput

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that terminals act upon.

Controls, marks of direction, surrogates, separators of lines and paragraphs.
"""
_BREAKS: Final = re.compile(r"\s*[\n\r]\s*")
LEAST: Final = 40
"""A terminal so narrow breaks lines rather than that they lose the number in the middle of a path."""
Colour = Literal["red", "green", "yellow", "dim"]
_COLOURS: Final[Mapping[Colour, int]] = {"red": 31, "green": 32, "yellow": 33, "dim": 2}


def escaped(text: str, *, keep: str = "") -> str:
    """`text` with escapes in place of what would steer a terminal, but for what to `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or category(c) not in _STEERING else _escape(c) for c in text)


def _escape(c: str) -> str:
    """As JSON has it, so that it can stand there too."""
    units = c.encode("utf-16-be", "surrogatepass")
    return {"\n": "\\n", "\t": "\\t"}.get(c) or "".join(
        f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)
    )


def say(line: str = "", file: TextIO | None = None) -> None:
    """One line, on standard output where no file is named."""
    print(escaped(line), file=file)


def note(message: str) -> None:
    """Print one line on standard error; blanks stay, as they count in quoted names."""
    say(f"protoslice: {_BREAKS.sub(' ', message.strip())}", sys.stderr)


def agreed(question: str, refusal: str) -> bool:
    """Ask on the terminal, and return True for a yes; raise `InvalidInput` without a terminal."""
    if not sys.stdin.isatty():
        raise InvalidInput(refusal)
    print(escaped(f"protoslice: {question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False)
    print(escaped(text, keep="\n"))


def utc(time: datetime) -> str:
    """A time to the second, as the JSON of the service has it: `2026-11-21T10:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and what they are, the names in a column."""
    column = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{coloured(name.ljust(column), 'dim')}  {escaped(value)}")


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    colours: Mapping[str, Colour] | None = None,
) -> None:
    """Print a table with a heading; columns in `right` are right-aligned, the last takes the rest.

    A row is in the colour that `colours` has for its first cell.
    """
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    for n, row in enumerate((titles, *rows)):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row[:-1])]
        room = width() - sum(map(len, cells)) - 2 * len(cells)
        line = "  ".join([*cells, shorten(row[-1], room)]).rstrip()
        colour = "dim" if n == 0 else (colours or {}).get(row[0])
        print(coloured(line, colour) if colour else line)


def shorten(text: str, room: int) -> str:
    """`text`, cut in its middle where it is longer than `room`, but not to less than tells it from others."""
    room = max(room, LEAST)
    if len(text) <= room:
        return text
    keep = room - 1
    return text[: keep - keep // 2] + "…" + text[len(text) - keep // 2 :]


def width() -> int:
    """Width of lines: that of the terminal; nothing is cut where the output is no terminal."""
    if not sys.stdout.isatty():
        return 1 << 20
    import shutil

    return shutil.get_terminal_size().columns


def print_wrapped(text: str, indent: int) -> None:
    """`text`, broken at spaces where the terminal is narrower; every line is indented."""
    import textwrap

    margin = " " * indent
    room = max(indent + 20, min(width(), 120))
    lines = textwrap.wrap(escaped(text), room, initial_indent=margin, subsequent_indent=margin, break_long_words=False)
    print("\n".join(lines))


def coloured(text: str, colour: Colour) -> str:
    """`text` in a colour, where somebody watches who wants colours."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"

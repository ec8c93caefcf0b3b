"""The output of commands, as tables or as a JSON document. Escapes prevent stored text from controlling a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from itertools import islice
from typing import Final, Literal, TextIO, TypeVar
from unicodedata import category

from protoslice.errors import InvalidInput
from protoslice.sizes import format_size

T = TypeVar("T")
_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that may control a terminal.

These are control and format characters, surrogates, and separators of lines and paragraphs.
"""
_BREAKS: Final = re.compile(r"\s*[\n\r]\s*")
LEAST: Final = 40
"""Number of characters that `shorten` always keeps, so that a path does not lose a number in its middle."""
Colour = Literal["red", "green", "yellow", "dim"]
_COLOURS: Final[Mapping[Colour, int]] = {"red": 31, "green": 32, "yellow": 33, "dim": 2}


def escaped(text: str, *, keep: str = "") -> str:
    """Return `text` with escapes instead of characters that control a terminal. Characters in `keep` are unchanged."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or category(c) not in _STEERING else _escape(c) for c in text)


def _escape(c: str) -> str:
    """Return the escape of a character in the form of JSON, so that escaped JSON documents stay valid."""
    units = c.encode("utf-16-be", "surrogatepass")
    return {"\n": "\\n", "\t": "\\t"}.get(c) or "".join(
        f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)
    )


def counted(count: int, what: str) -> str:
    """Return a number with its noun, such as `1 chunk` or `2 chunks`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def shape_text(shape: Sequence[int] | None) -> str:
    """Return the shape of a tensor as text, such as `3×224` or `scalar`, or `?` for None."""
    return "?" if shape is None else "×".join(map(str, shape)) or "scalar"


def exact_size(size: int) -> str:
    """Return a size with its exact number of bytes, such as `1.2 KiB (1229 bytes)`."""
    return f"{format_size(size)} ({size} bytes)"


def say(line: str = "", file: TextIO | None = None) -> None:
    """Print one line to `file`, which is standard output by default."""
    print(escaped(line), file=file)


def note(message: str) -> None:
    """Print a message as one line on standard error. Line breaks become blanks; other blanks are kept."""
    say(f"protoslice: {_BREAKS.sub(' ', message.strip())}", sys.stderr)


def agreed(question: str, refusal: str) -> bool:
    """Ask the user a question on the terminal, and return True if the answer is yes.

    Without a terminal, raise `InvalidInput` with the message `refusal`.
    """
    if not sys.stdin.isatty():
        raise InvalidInput(refusal)
    print(escaped(f"protoslice: {question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_json(value: object) -> None:
    """Print `value`, which may contain dataclasses and times, as one JSON document."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False, default=_as_json)
    print(escaped(text, keep="\n"))


def _as_json(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, datetime):
        return utc(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_items(
    items: Iterable[T],
    columns: Mapping[str, Callable[[T], object]],
    *,
    as_json: bool,
    right: Sequence[int] = (),
    limit: int = 0,
) -> None:
    """Print a list of items as a table with one row for each item, or, with `as_json`, as a JSON document.

    `columns` maps the title of each column to a function that returns the cell for an item. A cell of None is empty. A
    time is shown to the minute, and the members of a sequence are separated by blanks. At most `limit` items are shown,
    with a note on standard error if there are more items. A `limit` of 0 shows all items.
    """
    found = list(islice(items, limit + 1 if limit else None))
    shown = found[: limit or None]
    if as_json:
        print_json(shown)
    else:
        print_table(list(columns), [[_cell(of(each)) for of in columns.values()] for each in shown], right)
    if len(shown) < len(found):
        note(f"only the first {limit} are shown; use --limit 0 for all")


def print_files(written: Iterable[tuple[object, int]], *, as_json: bool) -> None:
    """Print the path and size of each file that was written."""
    if as_json:
        print_json([{"path": str(path), "size": size} for path, size in written])
        return
    for path, size in written:
        say(f"{path}: {format_size(size)}")


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, list | tuple):
        return " ".join(value)
    return "" if value is None else str(value)


def utc(time: datetime) -> str:
    """Return a time, rounded down to seconds, in the format of the service's JSON: `2026-11-21T10:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print pairs of a name and a value in two columns."""
    column = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{coloured(name.ljust(column), 'dim')}  {escaped(value)}")


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    colours: Mapping[str, Colour] | None = None,
) -> None:
    """Print a table with a heading.

    The columns whose numbers are in `right` are right-aligned. The last column is shortened to the remaining width.
    `colours` maps the text of a row's first cell to the row's colour.
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
    """Shorten `text` to `room` characters with an ellipsis in the middle, but never to less than `LEAST` characters."""
    room = max(room, LEAST)
    if len(text) <= room:
        return text
    keep = room - 1
    return text[: keep - keep // 2] + "…" + text[len(text) - keep // 2 :]


def width() -> int:
    """Return the width of the terminal. Without a terminal, return a width that no line reaches."""
    if not sys.stdout.isatty():
        return 1 << 20
    import shutil

    return shutil.get_terminal_size().columns


def print_wrapped(text: str, indent: int) -> None:
    """Print `text` in indented lines, wrapped at spaces to the width of the terminal."""
    import textwrap

    margin = " " * indent
    room = max(indent + 20, min(width(), 120))
    lines = textwrap.wrap(escaped(text), room, initial_indent=margin, subsequent_indent=margin, break_long_words=False)
    print("\n".join(lines))


def coloured(text: str, colour: Colour) -> str:
    """Return `text` in a colour, or unchanged if standard output is no terminal or the user has disabled colours."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"

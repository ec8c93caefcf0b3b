"""Checker of docstrings and comments, Python and Rust, against the rule for prose in CONTRIBUTING.md.

`python -m tests.house.prose` compares the number of breaches in each room with `prose.json`; `make check` runs it.
`python -m tests.house.prose ROOM` lists the breaches of a room, and `--lower` writes smaller numbers into `prose.json`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("prose.json")
FOLDERS = ("service", "tests", "bench", "docker", "docs", "core/wire", "core/python")
LONGEST = 100
RIDDLES = re.compile(
    r"(what|who|which|where|how)(ever)?|whom|whose|whether|none|so|it|its|itself|this|that|these|those"
    r"|they|them|theirs?|he|she|his|her"
)
EMPTY = re.compile(r"((a|an|the|one|as|all|some|another)\s+)?\S+", re.IGNORECASE)
ADVICE = """
  Put the field's noun or an active verb first: not "What is being made, by key" but "Concurrent callers for a key
  share one task". Say None, units and errors. Move reasons into a comment beside the line that they explain."""
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Breach:
    """One docstring or comment that breaks the rule, its place and the reason."""

    path: str
    line: int
    reason: str

    @property
    def room(self) -> str:
        """Folder that the breach counts for: at most three levels below the root, `service/protoslice/cli`."""
        folders = self.path.split("/")[:-1]
        return "/".join(folders[: 3 if folders[0] == "service" else 2])

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def fault(text: str) -> str | None:
    """The reason why the docstring `text` breaks the rule for prose; None for a text that keeps to it."""
    first = text.strip().split("\n")[0]
    if EMPTY.fullmatch(first) or not re.search(r"\w", first):
        return f"says nothing: {first!r}"
    if len(first) > LONGEST:
        return f"first line has {len(first)} characters, {LONGEST} are allowed: {first!r}"
    return riddle(first)


def riddle(text: str) -> str | None:
    """The reason why the opening of `text` breaks the rule; None for a noun or a verb."""
    opening = re.search(r"\w+", text)
    if opening and RIDDLES.fullmatch(opening[0].lower()):
        return f"opens with {opening[0]!r}: {text!r}"
    return None


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each docstring in Python's `source`, those below assignments included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            yield node.body[0].lineno, text
        body = getattr(node, "body", None)
        for assignment, below in pairwise(body if isinstance(body, list) else []):
            match assignment, below:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    yield below.lineno, text


def python_comments(source: str) -> Iterator[tuple[int, str]]:
    """Line number and first line of each comment in Python's `source`; lines of one block are one comment."""
    above = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            number = token.start[0]
            alone = token.line.lstrip().startswith("#")
            if not alone or above != number - 1:
                yield number, token.string.lstrip("# ")
            above = number if alone else 0


def rust_texts(source: str) -> Iterator[tuple[int, str]]:
    """Line number and first line of each block of comments in Rust's `source`, doc comments and others."""
    kind = None
    for number, line in enumerate(source.splitlines(), 1):
        comment = re.match(r"\s*(//(?:[/!](?!/))?)(?!/)\s?(.*)", line)
        if comment and comment[1] != kind:
            yield number, comment[2]
        kind = comment[1] if comment else None


def judged(path: str, source: str) -> Iterator[Breach]:
    """Breaches of the rule in the file `path` that holds `source`."""
    # Comments, and field names in Rust's structs, are short; formatters break their lines.
    openings = [*python_comments(source)] if path.endswith(".py") else [*rust_texts(source)]
    docstrings = [*python_texts(source)] if path.endswith(".py") else []
    for texts, judge in ((docstrings, fault), (openings, riddle)):
        yield from (Breach(path, line, reason) for line, text in texts if (reason := judge(text)))


def breaches(path: str) -> list[Breach]:
    """Breaches of the rule in one file, given by its path below the root."""
    return sorted(judged(path, (ROOT / path).read_text()), key=lambda breach: breach.line)


def sources() -> list[str]:
    """Paths below the root of all Python and Rust files, without generated ones."""
    found = (path for folder in FOLDERS for ending in ("py", "rs") for path in (ROOT / folder).rglob(f"*.{ending}"))
    return sorted(str(path.relative_to(ROOT)) for path in found if not path.stem.endswith("_pb2"))


def excess(found: list[Breach], allowed: dict[str, int]) -> dict[str, int]:
    """The number of breaches of each room that has more than `allowed`."""
    counts = Counter(breach.room for breach in found)
    return {room: count for room, count in sorted(counts.items()) if count > allowed.get(room, 0)}


def lowered(found: list[Breach], allowed: dict[str, int]) -> dict[str, int]:
    """Copy of `allowed` with the numbers that have become smaller, without rooms that have no breaches."""
    counts = Counter(breach.room for breach in found)
    least = {room: min(most, counts[room]) for room, most in sorted(allowed.items())}
    return {room: most for room, most in least.items() if most}


def main(arguments: list[str]) -> int:
    """Exit status: 1 when a room has more breaches than `prose.json` allows, else 0."""
    found = [breach for path in sources() for breach in breaches(path)]
    allowed: dict[str, int] = json.loads(ALLOWED.read_text())
    if arguments == ["--lower"]:
        allowed = lowered(found, allowed)
        ALLOWED.write_text(json.dumps(allowed, indent=2) + "\n")
    elif arguments:
        print(*(breach for breach in found if breach.path.startswith(arguments[0])), sep="\n")
        return 0
    over = excess(found, allowed)
    print(*(breach for breach in found if breach.room in over), sep="\n", end="\n" if over else "")
    for room, count in over.items():
        print(f"prose: {count} docstrings and comments of {room} break the rule, {allowed.get(room, 0)} may")
    if over:
        print(ADVICE.lstrip("\n"))
    elif lowered(found, allowed) != allowed:
        print("prose: fewer breaches than allowed; `python -m tests.house.prose --lower` keeps it so")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

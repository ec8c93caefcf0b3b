"""Checker of docstrings and comments, Python and Rust, against the rule for prose in CONTRIBUTING.md.

`python -m tests.house.prose` lists all breaches, `python -m tests.house.prose FOLDER` those of a folder. `make check`
runs the checker, and accepts none.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("service", "tests", "bench", "docker", "docs", "core/wire", "core/python")
LONGEST = 100
RIDDLES = re.compile(
    r"(what|who|which|where|how)(ever)?|whom|whose|whether|none|so|it|its|itself|this|that|these|those"
    r"|they|them|theirs?|he|she|his|her"
)
EMPTY = re.compile(r"((a|an|the|one|as|all|some|another)\s+)?\S+", re.IGNORECASE)
ADVICE = """\
  Put the field's noun or an active verb first: not "What is being made, by key" but "Concurrent callers for a key
  share one task". Say None, units and errors. Move reasons into a comment beside the line that they explain."""
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Breach:
    """One docstring or comment that breaks the rule, its place and the reason."""

    path: str
    line: int
    reason: str

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


def main(folders: list[str]) -> int:
    """Exit status: 1 when a file in `folders`, or in any folder for none, breaks the rule; else 0."""
    paths = [path for path in sources() if not folders or path.startswith(tuple(folders))]
    found = [breach for path in paths for breach in breaches(path)]
    if found:
        print(*found, f"prose: {len(found)} docstrings and comments break the rule", ADVICE, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

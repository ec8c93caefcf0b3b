"""Measure the size of the code in commits: `python -m tools.measure [COMMIT…]`.

Print a table with a row for each measure and a column for each commit, or for HEAD if no commit is named. The files are
read from git, so nothing is checked out. Sizes have no limits: do not squeeze lines or delete tests to shrink them.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from statistics import median, quantiles
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CACHES: Final = frozenset({"LruCache", "Results"})
"""Classes of caches; each call of one of them makes a bounded cache."""
MADE: Final = frozenset(
    {"docs/how-to/contribute/modules.md", "docs/reference/commands.md", "docs/reference/operations.md"}
)
"""Pages that `make docs` makes; they are not in git."""
_ENDS: Final = frozenset({"cli", "client", "server"})
_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def sizes(files: Mapping[str, str]) -> dict[str, float]:
    """Return each measure of a tree by its name; `files` has the text of Python files and pages by path."""
    package = {_module(path): text for path, text in files.items() if path.startswith("service/") and _is_code(path)}
    tests = [lines_of(text) for path, text in files.items() if path.startswith("tests/") and _is_code(path)]
    lines = [lines_of(text) for text in package.values()]
    pages = [text for path, text in files.items() if path.endswith(".md") and path not in MADE]
    names = Counter(name for module in package if (name := module.rpartition(".")[2]) != "__init__")
    return {
        "package: lines of code": sum(lines),
        "package: files": len(package),
        "package: median lines of code of a file": median(lines),
        "package: files above 500 lines of code": sum(each > 500 for each in lines),
        "package: modules with one importer": sum(count == 1 for count in importers_of(package).values()),
        "package: names of modules used three times or more": sum(count >= 3 for count in names.values()),
        "caches with a bound, without server, client and cli": sum(
            caches_in(text) for module, text in package.items() if module.split(".")[1] not in _ENDS
        ),
        "tests: lines of code": sum(tests),
        "tests: files": len(tests),
        "docs: words, without pages that are not in git": sum(len(page.split()) for page in pages),
    }


def _is_code(path: str) -> bool:
    return path.endswith(".py") and not path.endswith("_pb2.py")


def _module(path: str) -> str:
    return ".".join(PurePosixPath(path).relative_to("service").with_suffix("").parts)


def lines_of(source: str) -> int:
    """Return the number of lines of code, without blank lines, comments and docstrings."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def importers_of(sources: Mapping[str, str]) -> Counter[str]:
    """Return for each module how many modules import it; an import of a package counts for none."""
    found = Counter[str]()
    for source in sources.values():
        seen = set[str]()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                seen |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
            elif isinstance(node, ast.Import):
                seen |= {name.name for name in node.names}
        found.update(seen & sources.keys())
    return found


def caches_in(source: str) -> int:
    """Return how many calls in `source` make a cache."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    names = (func.value if isinstance(func, ast.Subscript) else func for func in calls)
    return sum(isinstance(name, ast.Name) and name.id in CACHES for name in names)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def files_of(commit: str) -> dict[str, str]:
    """Return a commit's files by path: the Python files of the package and the tests, and the pages."""
    paths = (":(glob)service/protoslice/**/*.py", ":(glob)tests/**/*.py", ":(glob)docs/**/*.md")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, *paths))) as archive:
        return {name: text.read().decode() for name in archive.getnames() if (text := archive.extractfile(name))}


def touched_by(commit: str, last: int = 400) -> Iterator[int]:
    """Yield how many files each feature touches; a feature is a commit that adds 60 to 600 lines.

    Only the `last` commits count. Tests, docs, the OpenAPI document and the changelog are left out.
    """
    log = _git("log", "--no-merges", f"-{last}", "--numstat", "--format=%x00", commit).decode()
    for change in log.split("\0")[1:]:
        rows = [row.split("\t") for row in change.splitlines() if row]
        code = [added for added, _, path in rows if not path.startswith(("tests/", "docs/", "openapi/", "CHANGELOG"))]
        if 60 <= sum(int(added) for added in code if added != "-") <= 600:
            yield len(code)


def measures(commit: str) -> dict[str, float]:
    """Return the measures of a commit by name."""
    touched = sorted(touched_by(commit))
    return {
        **sizes(files_of(commit)),
        "last 400 commits: files of a feature, median": median(touched),
        "last 400 commits: files of a feature, p90": quantiles(touched, n=10)[-1],
    }


def main(commits: list[str]) -> None:
    """Print the table of the measures of `commits`."""
    columns = {commit: measures(commit) for commit in commits or ["HEAD"]}
    print("| |", " | ".join(commit[:12] for commit in columns), "|")
    print("|---|" + "---:|" * len(columns))
    for name in next(iter(columns.values())):
        print(f"| {name} |", " | ".join(f"{each.get(name, 0):g}" for each in columns.values()), "|")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Count what should become less: code, files and words of the project's former dialect.

`python tools/counts.py` prints the marked words per 1 000 words of each text that users read, with their limits in
`tools/limits.json`; then the sizes of the code, with those of commit 6f543298 in `tools/baseline.json`. `--check` (in
`make check`) only fails when a text is over its limit. After an improvement, `--lower` writes the lower counts as
limits. Limits are never raised. Sizes have none: do not squeeze lines or delete tests to reach one.

`python tools/counts.py --sizes CHECKOUT` prints the sizes of another checkout as JSON, like `tools/baseline.json`.
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
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LIMITS: Final = ROOT / "tools/limits.json"
BASELINE: Final = ROOT / "tools/baseline.json"
MARKED: Final = re.compile(
    r"\b(told|tells? of|beside|alone|anew|nobody|nothing but|whoever|whatever|of (?:its|their) own|thereof"
    r"|stands? (?:in|at|there|still)|lies? (?:in|at|there|beside)|comes? (?:with|from|behind)|goes? on|breaks? off"
    r"|(?:is|are) due|by (?:itself|themselves)|what is there|as it (?:is|was|came)|is to be had|would be dear|a word of"
    r"|is no (?!longer))\b",
    re.IGNORECASE,
)
CODE: Final = re.compile(r"```.*?```|`[^`]*`|\{[^{}]*\}", re.DOTALL)
_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def marked(text: str) -> float:
    """Return how many of 1 000 words of `text` are marked; code and values do not count."""
    prose = CODE.sub(" ", text)
    return 1000 * len(MARKED.findall(prose)) / max(1, len(re.findall(r"\w+", prose)))


def counts() -> dict[str, float]:
    """Return the marked words of each text by its name."""
    sys.path.insert(0, str(ROOT))  # for a run as `python tools/counts.py`
    from tools.messages import messages

    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {f"marked words, {page.relative_to(ROOT)}": marked(page.read_text()) for page in pages}
    found["marked words, messages"] = marked("\n".join(each.text for each in messages()))
    return {name: round(count, 2) for name, count in found.items()}


def sizes(checkout: Path) -> dict[str, float]:
    """Return the sizes of the code of a checkout, and the marked words of its prose."""
    package = {path: path.read_text() for path in sorted((checkout / "service/protoslice").rglob("*.py"))}
    read = [lines_and_prose(source) for source in package.values()]
    importers = importers_of({module_of(path, checkout): source for path, source in package.items()})
    tests = [lines_and_prose(path.read_text())[0] for path in sorted((checkout / "tests").rglob("*.py"))]
    pages = [checkout / "README.md", *sorted((checkout / "docs").rglob("*.md"))]
    return {
        "lines of code in the package": sum(lines for lines, _ in read),
        "lines of code in tests": sum(tests),
        "files in the package": len(package),
        "median lines of code of a file": median(lines for lines, _ in read),
        "modules with one importer": sum(count == 1 for count in importers.values()),
        "marked words, docs and README": round(marked("\n".join(page.read_text() for page in pages)), 2),
        "marked words, docstrings and comments": round(marked("\n".join(prose for _, prose in read)), 2),
    }


def lines_and_prose(source: str) -> tuple[int, str]:
    """Return the number of lines of code, without comments and docstrings, and the text of these."""
    said = list(docstrings(ast.parse(source)))
    lines, comments = set[int](), list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string)
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for each in said:
        lines.difference_update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return len(lines), "\n".join([*(str(each.value) for each in said), *comments])


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings that are statements: docstrings, of attributes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def module_of(path: Path, checkout: Path) -> str:
    """Return the name of the module in a file of the package."""
    return ".".join(path.relative_to(checkout / "service").with_suffix("").parts)


def importers_of(sources: dict[str, str]) -> Counter[str]:
    """Return how many modules import each; packages themselves are left out."""
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


def exceeded(found: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return a line for each count over its limit; a count that has no limit yet may be 1."""
    return [
        f"{name}: {count}, at most {most}" for name, count in found.items() if count > (most := limits.get(name, 1))
    ]


def lowered(found: dict[str, float], limits: dict[str, float]) -> dict[str, float]:
    """Return the limits, with each that a count has fallen below replaced by that count."""
    return {name: min(count, limits.get(name, count)) for name, count in found.items()}


def main(arguments: list[str]) -> int:
    """Print the counts, and return 1 when one is over its limit."""
    if arguments[:1] == ["--sizes"]:
        print(json.dumps(sizes(Path(arguments[1])), indent=1))
        return 0
    found, limits = counts(), json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if arguments == ["--lower"]:
        LIMITS.write_text(json.dumps(lowered(found, limits), indent=1) + "\n")
    elif over := exceeded(found, limits):
        print(*over, "Use plain words: see 'How we write prose' in CONTRIBUTING.md", sep="\n")
        return 1
    else:
        print(*(f"{count:8g} (at most {limits.get(name, 1):g})  {name}" for name, count in found.items()), sep="\n")
    if not arguments:
        before = json.loads(BASELINE.read_text())
        print(*(f"{count:8g} (was {before[name]:g})  {name}" for name, count in sizes(ROOT).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

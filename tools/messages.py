"""List all texts that users of Protoslice read: errors, logs, help, pages and the API's description.

`python -m tools.messages` prints one line per text: its kind, its place and the text; `{…}` marks a value.
`python -m tools.messages error help` prints only these kinds. `--paths` adds where each text is. `--sample N` picks N
texts at random, for a reader who has not seen them before.

Errors, logs and output are found in the sources (Python, Rust, TypeScript). Help, problems, settings and the
description of the HTTP API come from the application.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from typer.main import get_command

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "service/protoslice"
LOGGING = {"debug", "info", "warning", "error", "exception", "critical"}
RAISING = re.compile(r"^(\w*(Error|Problem|Failure|Exception)|BadParameter|UsageError)$")
CODE = re.compile(  # SQL; routes; upper case and lists of names; headers and styles; types, patterns and pragmas
    r"""\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|BEGIN|PRAGMA|SET|WHERE|AND|FROM|ORDER|VACUUM|ROLLBACK)[ ]
    | (GET|HEAD|PUT|POST|PATCH|DELETE|OPTIONS)[ ][/{]
    | \(extract | [A-Z][A-Z ]+([ ]job|[?])?$ | [\w*-]+(,[ ][\w*-]+)+$
    | .*[=:][ ]?[\w']+;[ ]?\w | default-src | bytes[ ] | [a-z]+/[a-z0-9.+-]+([;,]|$) | .*max-age=
    | (tuple|list|dict)\[ | \w+[ ]\|[ ]None$ | .*(\\[dbs.]|\(\?[:P]|\[0-9]) | .*(?<!=)=[ ][A-Z0-9{]
    | protoslice[ ](signed|signer|sealed|views|store)[ ]
    | .*[=<>(,][ ]?:\w | .*\b(PRIMARY[ ]KEY|ON[ ]CONFLICT|CASE[ ]WHEN|LOCK[ ]TABLE)\b
    | .*\b(IS[ ]NOT[ ]NULL|JOIN|GLOB|COPY|SELECT|WHERE|LIMIT)\b
    | [a-z]\.\w+,[ ]""",
    re.VERBOSE | re.DOTALL,
)
JSX = re.compile(r"=>|&&|\|\||===|\)[:;]|\?\s*$|^[\])}:,]|^\(|: [A-Z]\w+$|^\{ |\{$")
PROSE = re.compile(r"[A-Za-z']{2,}[.,:;!?]?[ \n]|[ \n][A-Za-z']{3,}[.!?]?$")
SHORT = 3
KINDS = ("error", "log", "text", "help", "problem", "setting", "api", "page", "core")


@dataclass(frozen=True, order=True)
class Message:
    """One text, its kind, and the place where it is written."""

    kind: str
    place: str
    text: str


def messages() -> list[Message]:
    """Return every text once, ordered by kind and place; fragments of up to three words are left out."""
    unique: dict[str, Message] = {}
    for each in [*_help(), *_application(), *_python(), *_pages(), *_core()]:
        if each.text[:1].isupper() or each.kind not in {"text", "core"} or len(each.text.split()) > SHORT:
            unique.setdefault(each.text, each)
    return sorted(unique.values(), key=lambda each: (KINDS.index(each.kind), each.place))


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line:04}"


def _python() -> Iterator[Message]:
    """Find strings in the package that read as prose, except docstrings, patterns and SQL."""
    raised = _error_names()
    for path in sorted(set(PACKAGE.rglob("*.py")) - set((PACKAGE / "testing").rglob("*.py"))):
        tree = ast.parse(path.read_text())
        yield from (Message(kind, _place(path, line), text) for kind, line, text in _strings(tree, "text", raised))


def _error_names() -> set[str]:
    """Return the names of all exception classes that the package defines."""
    bases: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(_called(base) for base in node.bases)
    known = {"Exception", "ValueError", "LookupError", "OSError", "RuntimeError", "TypeError", "HTTPException"}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def _called(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _strings(node: ast.AST, kind: str, raised: set[str]) -> Iterator[tuple[str, int, str]]:
    """Yield kind, line and text of each string below `node`; `kind` is the kind of the code around the node."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name(id="__all__")]) | ast.Assert():
            return  # a docstring, or code that has no texts for users
        case ast.Call(func=ast.Name(id="AssertionError" | "RuntimeError" | "AttributeError")):
            return  # only raised for a mistake in the program
        case ast.Constant(value=str()) | ast.JoinedStr():
            text = _joined(node)
            text = re.sub(r"</?[a-z]+[1-6]?(?: [^>]*)?>", " ", text)
            if PROSE.search(re.sub(r"\{[^{}]*\}", "x", text)) and not CODE.match(text):
                yield kind, node.lineno, text
            return
        case ast.Call(func=function):
            name = _called(function)
            if isinstance(function, ast.Attribute) and name in LOGGING and "log" in ast.unparse(function.value).lower():
                kind = "log"
            elif name in raised or RAISING.match(name):
                kind = "error"
        case ast.Raise():
            kind = "error"
    for below in ast.iter_child_nodes(node):
        yield from _strings(below, kind, raised)


def _joined(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(_joined(value) for value in values)
        case ast.FormattedValue(value=value):
            return f"{{{re.sub('[{}]', '', ast.unparse(value))}}}"
    return ""


def _help() -> Iterator[Message]:
    """Yield the help texts of the command line: the description of each verb and of each option."""
    from protoslice.cli.app import app

    todo = [("protoslice", get_command(app))]
    while todo:
        name, command = todo.pop()
        for text in (command.help, command.epilog):
            if text:
                yield Message("help", name, text)
        for parameter in command.params:
            if text := getattr(parameter, "help", None):
                yield Message("help", f"{name} {max(parameter.opts, key=len)}", text)
        todo += [(f"{name} {verb}", below) for verb, below in getattr(command, "commands", {}).items()]


def _application() -> Iterator[Message]:
    """Yield the problems, the settings and the description of the HTTP API."""
    from tools.openapi import document_text

    from protoslice.server.problems import PROBLEMS
    from protoslice.server.settings import Settings, environment_name

    for problem in PROBLEMS:
        yield from (Message("problem", problem.slug, text) for text in (problem.title, problem.advice))
    for name, field in Settings.model_fields.items():
        yield Message("setting", environment_name(name), field.description or "")
    yield from _described(json.loads(document_text()), "")


def _described(value: object, place: str) -> Iterator[Message]:
    if isinstance(value, dict):
        for name, below in value.items():
            if name in {"summary", "description"} and isinstance(below, str):
                yield Message("api", place, below)
            elif name not in {"example", "examples"}:
                yield from _described(below, f"{place}/{name}")
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _described(below, f"{place}/{number}")


def _pages() -> Iterator[Message]:
    """Find the page's texts in its TypeScript: quoted strings, template strings and text between tags."""
    for path in sorted((ROOT / "web/src").rglob("*.ts*")):
        source = re.sub(
            r"/\*.*?\*/|(?<=\s)//[^\n]*", lambda found: "\n" * found[0].count("\n"), path.read_text(), flags=re.S
        )
        source = re.sub(r'(?<= )class=("[^"]*"|\{`[^`]*`\})', lambda found: "\n" * found[0].count("\n"), source)
        for pattern in (r'"((?:[^"\\\n]|\\.)*)"', r"`((?:[^`\\]|\\.)*)`", r"(?<![=<])>([^<>`;=]*[A-Za-z][^<>`;=]*)</?"):
            for found in re.finditer(pattern, source):
                text = re.sub(r"\$?\{(?:[^{}]|\{[^{}]*\})*\}", "{…}", found[1]).strip()
                if not JSX.search(text) and (PROSE.search(text) or re.fullmatch(r"[A-Z][a-z]+[.!?]?", text)):
                    yield Message("page", _place(path, source.count("\n", 0, found.start()) + 1), text)


def _core() -> Iterator[Message]:
    """Find error texts in the Rust core: strings outside of comments, attributes and unit tests."""
    for crate in ("wire", "python"):
        for path in sorted((ROOT / "core" / crate / "src").rglob("*.rs")):
            source = path.read_text().split("#[cfg(test)]")[0]
            for number, line in enumerate(source.splitlines(), 1):
                code = re.sub(r"^\s*#!?\[.*|(^|\s)//.*", "", line)
                for found in re.findall(r'"((?:[^"\\]|\\.)*)"', code):
                    if PROSE.search(found):
                        yield Message("core", _place(path, number), found)


def main() -> None:
    """Print the texts of the kinds that the arguments name, or of every kind."""
    parser = argparse.ArgumentParser(description="List the texts that users of Protoslice read.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"only these kinds: {', '.join(KINDS)}")
    parser.add_argument("--paths", action="store_true", help="print where each text is")
    parser.add_argument("--sample", type=int, metavar="N", help="print N texts, picked at random")
    parser.add_argument("--seed", type=int, default=0, help="another number picks another sample")
    given = parser.parse_args()
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"unknown kind {min(unknown)}: use {', '.join(KINDS)}")
    found = [each for each in messages() if each.kind in (given.kinds or KINDS)]
    if given.sample is not None:
        found = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    for each in found:
        place = f" {each.place}:" if given.paths or each.kind in {"help", "problem", "setting"} else ""
        print(f"{each.kind}:{place} {' '.join(each.text.split())}")


if __name__ == "__main__":
    main()

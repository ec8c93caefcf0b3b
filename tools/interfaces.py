"""Write the pages of docs/ that list every command and every operation.

`make docs` runs this; the pages are not in git. The commands come from Typer, and the operations from the OpenAPI
document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer
from typer.main import get_command

from protoslice.cli.app import app
from protoslice.server.app import create_app
from protoslice.server.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[1]


def commands_page() -> str:
    """Return the page of all commands, with their arguments and options."""
    program = get_command(app)
    context = typer.Context(program, info_name="protoslice")
    sections = ["# Commands", "`protoslice COMMAND --help` shows the same in a terminal.", *_commands(program, context)]
    return "\n\n".join(sections) + "\n"


def _commands(group: Any, context: typer.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from _commands(command, inner)
        elif not command.hidden:
            yield _command(command, inner)


def _command(command: Any, context: typer.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## {context.command_path.removeprefix('protoslice ')}"]
    text, _, example = (command.help or "").partition("Example: ")
    parts.append(_prose(text))
    parts.append("\n".join(["```text", f"{context.command_path} {usage}", "```"]))
    if example:
        parts.append("\n".join(["Example:", "", "```sh", *example.strip().splitlines(), "```"]))
    rows = [record for each in command.params if (record := each.get_help_record(context)) and record[0] != "--help"]
    if rows:
        table = (f"| {_code(name)} | {_cell(text)} |" for name, text in rows)
        parts.append("\n".join(["| argument or option | meaning |", "|---|---|", *table]))
    return "\n\n".join(parts)


def operations_page() -> str:
    """Return the page of all operations, with their parameters, bodies and answers."""
    document = create_app(Settings(storage="memory://")).openapi()
    found = [
        (method.upper(), path, said)
        for path, operations in document["paths"].items()
        for method, said in operations.items()
        if method != "head" or "get" not in operations
    ]
    sections = [
        "# Operations",
        "Every operation of the service, as in its `/openapi.json`. `HEAD` is offered wherever `GET` is.",
    ]
    for tag in document["tags"]:
        sections += [f"## {tag['name'].capitalize()}", tag["description"]]
        sections += [_operation(*each) for each in found if tag["name"] in each[2]["tags"]]
    return "\n\n".join(sections) + "\n"


def _operation(method: str, path: str, said: dict[str, Any]) -> str:
    parts = [f"### {method} {path}", f"{said['summary']}."]
    if said.get("deprecated"):
        parts.append("**Deprecated.**")
    elif "x-stability" in said:
        parts.append("*Experimental: a minor release may change it.*")
    if text := said.get("description"):
        parts.append(_prose(text))
    named = (each for each in said.get("parameters", []) if "$ref" not in each)
    rows = [f"| `{each['name']}` | {each['in']} | {_cell(each.get('description', ''))} |" for each in named]
    if rows:
        parts.append("\n".join(["| parameter | in | meaning |", "|---|---|---|", *rows]))
    if body := said.get("requestBody"):
        parts.append("Body: " + ", ".join(f"`{kind}`" for kind in body["content"]))
    problems = [f"`{status}`" for status in said["responses"] if status >= "4"]
    answers = [
        f"| {status} | {_cell(each.get('description', ''))} |"
        for status, each in said["responses"].items()
        if status < "4"
    ]
    parts.append("\n".join(["| status | meaning |", "|---|---|", *answers]))
    if problems:
        parts.append(f"[Problems](problems.md): {', '.join(problems)}")
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines()).replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/commands.md": commands_page,
    "reference/operations.md": operations_page,
}
"""The functions that make the pages, by path below docs/."""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page(), encoding="utf-8")

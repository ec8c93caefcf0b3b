"""The map of all modules, docs/modules.md, made of the first line of each module's docstring.

`python -m tests.house.module_map` writes the map between its two markers; `make docs` runs it.
"""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "modules.md"
PACKAGE = ROOT / "service" / "protoslice"
BEGIN = "<!-- modules: made by `make docs` of the first lines of docstrings -->\n"
END = "<!-- end of modules -->\n"


def summary(path: Path) -> str:
    """First line of the docstring of the module at `path`, as a cell of a table."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.split("\n")[0].replace("|", "\\|")


def modules() -> list[Path]:
    """Paths of the package's modules, room by room, without generated ones and `__init__`."""
    found = (path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" and not path.stem.endswith("_pb2"))
    return sorted(found, key=lambda path: (path.parent.relative_to(PACKAGE).parts, path.name))


def section() -> str:
    """The map: a heading and a table for each room."""
    rooms = []
    for room, paths in groupby(modules(), key=lambda path: path.parent):
        name = room.relative_to(PACKAGE.parent).as_posix()
        rows = [f"| `{path.stem}` | {summary(path)} |" for path in paths]
        rooms.append(
            "\n".join([f"### {name}/", "", summary(room / "__init__.py"), "", "| module | |", "|---|---|", *rows])
        )
    return "\n" + "\n\n".join(rooms) + "\n\n"


def page(text: str) -> str:
    """The page `text` with the map between its markers made anew."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE.name} has lost the markers of the map")
    return before + BEGIN + section() + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

"""List every module with the first line of its docstring in docs/how-to/contribute/modules.md.

`make docs` runs this; the page is not in git.
"""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "service" / "protoslice"


def summary(path: Path) -> str:
    """Return the first line of the docstring of the module at `path`, escaped for a cell of a table."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.split("\n")[0].replace("|", "\\|")


def page() -> str:
    """Return the page, with a heading and a table for each package."""
    found = (path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    modules = sorted(found, key=lambda path: (path.parent.relative_to(PACKAGE).parts, path.name))
    sections = ["# Every module"]
    for folder, paths in groupby(modules, key=lambda path: path.parent):
        head = f"### {folder.relative_to(PACKAGE.parent).as_posix()}/\n\n{summary(folder / '__init__.py')}"
        rows = "\n".join(f"| `{path.stem}` | {summary(path)} |" for path in paths)
        sections.append(f"{head}\n\n| module | |\n|---|---|\n{rows}")
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    (ROOT / "docs/how-to/contribute/modules.md").write_text(page())

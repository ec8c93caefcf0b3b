"""Imports in the package make no circle, with those inside functions and those for types alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "service/protoslice"


def imports_in(package: Path) -> dict[str, set[str]]:
    """Modules of `package` that each of its modules imports; its face, which imports on demand, has none."""
    paths = {_name(path, package): path for path in package.rglob("*.py")}
    found = {name: _imported(path) & paths.keys() - {name} for name, path in paths.items()}
    return {**found, package.name: set()}


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules of one circle, in order; none when there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_comes_back_to_itself() -> None:
    graph = imports_in(PACKAGE)
    assert sum(map(len, graph.values())) > 1000
    assert _circle(graph) == [], "a circle of imports: move what both need below both"


@pytest.mark.parametrize(
    ("back", "circle"),
    [
        ("from sample.a import x", True),
        ("def f():\n    from sample import a", True),
        ("if TYPE_CHECKING:\n    import sample.a", True),
        ("from sample.c import x", False),
    ],
)
def test_a_circle_is_found(tmp_path: Path, back: str, circle: bool) -> None:
    for name, text in {"__init__": "import sample.a", "a": "from sample.b import y", "b": back, "c": ""}.items():
        (tmp_path / "sample").mkdir(exist_ok=True)
        (tmp_path / f"sample/{name}.py").write_text(text)
    assert (_circle(imports_in(tmp_path / "sample")) != []) is circle

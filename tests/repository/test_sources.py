"""Strings of models are decoded in one place only, `protoslice.schema.strings`.

Imports in the package make no circle, including imports inside functions and imports for types only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "service/protoslice"
READERS = ("formats", "graphs", "library", "comparing", "streams", "ingest", "uploads", "views", "serving", "stores")
"""The packages that read models."""
ALLOWED = {
    "formats/paddle_files.py",  # a list of names, whose lines must be UTF-8
    "formats/safetensors.py",  # JSON, which must be UTF-8
    "serving/finding.py",  # records of our own
}


def faults(source: str) -> Iterator[str]:
    """Return the calls in `source` that parse a message or decode bytes directly."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"FromString", "ParseFromString", "MergeFromString"}:
                yield f"line {node.lineno}: parse messages by schema.parsed"
            elif node.func.attr == "decode" and not _is_base64_or_record(node):
                yield f"line {node.lineno}: decode names by schema.text_of"


def _is_base64_or_record(node: ast.Call) -> bool:
    """Return True for `b64encode(…).decode()`, and for `decode` of one of our classes, which receives the bytes."""
    of = node.func.value if isinstance(node.func, ast.Attribute) else node
    encoded = isinstance(of, ast.Call) and isinstance(of.func, ast.Name | ast.Attribute)
    name = getattr(of.func, "id", getattr(of.func, "attr", "")) if isinstance(of, ast.Call) else ""
    return (encoded and name in {"b64encode", "encode"}) or any(not isinstance(arg, ast.Constant) for arg in node.args)


def test_strings_are_decoded_in_one_place() -> None:
    paths = [path for package in READERS for path in sorted(PACKAGE.joinpath(package).rglob("*.py"))]
    assert len(paths) > 50
    found = {path.relative_to(PACKAGE).as_posix(): list(faults(path.read_text())) for path in paths}
    assert {name: lines for name, lines in found.items() if lines and name not in ALLOWED} == {}


def test_allowed_files_exist() -> None:
    assert [path for path in sorted(ALLOWED) if not PACKAGE.joinpath(path).is_file()] == []


@pytest.mark.parametrize("source", ["kind.FromString(data)", "name.decode()", "name.decode('utf-8', 'replace')"])
def test_other_ways_are_found(source: str) -> None:
    assert len(list(faults(source))) == 1


def imports_in(package: Path) -> dict[str, set[str]]:
    """Return for each module of `package` the modules it imports; the package's lazy `__init__` imports none."""
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
    """Return the modules of one circle, in order; an empty list without a circle."""
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

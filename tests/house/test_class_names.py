"""One name for one class: no two modules of the package define public classes of one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "service/protoslice"


def classes_in(package: Path) -> dict[str, list[str]]:
    """Modules that define a public class at their top level, by the name of the class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(path.relative_to(package).as_posix())
    return found


def test_no_two_public_classes_have_one_name() -> None:
    twice = {name: modules for name, modules in classes_in(PACKAGE).items() if len(modules) > 1}
    assert twice == {}, "two classes of one name: rename the one that is further from what people call by it"


@pytest.mark.parametrize(("other", "count"), [("Part", 2), ("Whole", 1), ("_Part", 1)])
def test_a_second_class_of_one_name_is_found(tmp_path: Path, other: str, count: int) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "a.py").write_text("class Part:\n    class Inner: ...\n")
    (tmp_path / "room/b.py").write_text(f"class {other}:\n    class Inner: ...\n")
    found = classes_in(tmp_path)
    assert len(found["Part"]) == count
    assert "Inner" not in found

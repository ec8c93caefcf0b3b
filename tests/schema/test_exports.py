"""The public face of protoslice.schema, and what lies behind it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import protoslice.schema
from protoslice import detection

PACKAGE = Path(protoslice.schema.__path__[0])


def test_all_is_exactly_what_is_public() -> None:
    imported = set()
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("protoslice"):
            imported |= {alias.name for alias in node.names}
    assert set(protoslice.schema.__all__) == imported
    assert sorted(protoslice.schema.__all__, key=str) == protoslice.schema.__all__
    assert all(getattr(protoslice.schema, name).__doc__ for name in protoslice.schema.__all__)


def test_names_of_detection_are_found_at_their_former_path() -> None:
    for name in ("Detection", "candidates", "detect", "detect_message"):
        assert getattr(protoslice.schema, name) is getattr(detection, name)
    with pytest.raises(AttributeError, match="has no attribute 'look_at'"):
        protoslice.schema.look_at  # noqa: B018


def test_schema_knows_only_errors_the_core_and_itself() -> None:
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("protoslice"):
                below = {"protoslice._core", "protoslice.errors", "protoslice.varints"}
                assert node.module in below or "protoslice.schema" in str(node.module)


def test_the_page_names_types_that_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "schemas.md").read_text()
    table = page[page.index("| format") : page.index("Any type of these")]
    named = set(re.findall(r"`((?:\w+\.)+[A-Z]\w+)`", table))
    assert len(named) > 15
    assert named <= set(protoslice.schema.bundled().names())
    for file in re.findall(r"`(\w+/\w+\.proto)`", table):
        assert (Path(__file__).parents[2] / "protos" / file).is_file(), file

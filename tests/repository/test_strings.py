"""Strings of models are decoded in one place only, `protoslice.schema.strings`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import protoslice

PACKAGE = Path(protoslice.__file__).parent
READERS = ("formats", "graphs", "library", "comparing", "streams", "ingest", "uploads", "views", "serving", "stores")
"""Packages that read models."""
ALLOWED = {
    "formats/paddle_files.py",  # a list of names, whose lines must be UTF-8
    "formats/safetensors.py",  # JSON, which must be UTF-8
    "serving/finding.py",  # records of our own
}


def faults(source: str) -> Iterator[str]:
    """Calls in `source` that parse a message or decode bytes by themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"FromString", "ParseFromString", "MergeFromString"}:
                yield f"line {node.lineno}: parse messages by schema.parsed"
            elif node.func.attr == "decode" and not _is_base64_or_record(node):
                yield f"line {node.lineno}: decode names by schema.text_of"


def _is_base64_or_record(node: ast.Call) -> bool:
    """True for `b64encode(…).decode()`, and for `decode` of a class of ours, which is given the bytes."""
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

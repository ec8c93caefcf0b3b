"""The pages of promises and differences: every row has a test that exists, or is open."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("promises", "differences")
NAMED = re.compile(r"`(tests/[\w/]+\.(?:py::test_\w+|console::[^`]+))`")


def page(name: str) -> str:
    return (ROOT / "docs/reference" / f"{name}.md").read_text()


def rows(name: str) -> list[list[str]]:
    """Cells of all rows of the tables of a page, without the heads."""
    found = [line.strip("|").split(" | ") for line in page(name).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in found if cells[-1].strip() != "shown by"]


@cache
def defined_in(path: str) -> set[str]:
    kind = r"^## (.+)$" if path.endswith(".console") else r"^ *(?:async )?def (test_\w+)"
    return set(re.findall(kind, (ROOT / path).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_every_test_that_is_named_exists(name: str) -> None:
    named = [each.split("::") for each in NAMED.findall(page(name))]
    assert len(named) > 15
    assert [
        f"{path}::{test}" for path, test in named if not (ROOT / path).is_file() or test not in defined_in(path)
    ] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_row_has_a_test_or_is_open(name: str) -> None:
    assert len(rows(name)) > 15
    for *cells, shown in rows(name):
        assert all(cells), cells
        assert NAMED.fullmatch(shown) or (name == "promises" and shown == "open"), cells


def test_no_fewer_promises_than_were_audited() -> None:
    promised = [cells[0] for cells in rows("promises")]
    assert len(set(promised)) == len(promised) >= 62

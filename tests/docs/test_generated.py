"""Generated files are those that their generators make now; `make docs` writes all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import module_map
from tools.openapi import document_text
from tools.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
STALE = "is stale: run `make docs`"


def test_the_openapi_document() -> None:
    assert (ROOT / "openapi/openapi.json").read_text() == document_text(), f"openapi.json {STALE}"


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_pages(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"{name} {STALE}"


def test_list_of_modules_is_written_into_the_docs_of_this_repository() -> None:
    assert module_map.ROOT == ROOT
    assert "| `planner` |" in module_map.page()

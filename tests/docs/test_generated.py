"""Generated files are those that their generators make now; `make docs` writes all of them."""

from __future__ import annotations

import pytest
from tests.house import module_map

from protoslice.server.api.documentation.openapi_file import document_text
from protoslice.server.api.documentation.reference import PAGES

ROOT = module_map.ROOT
STALE = "is stale: run `make docs`"


def test_the_openapi_document() -> None:
    assert (ROOT / "openapi/openapi.json").read_text() == document_text(), f"openapi.json {STALE}"


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_pages(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"{name} {STALE}"


def test_the_map_of_modules() -> None:
    text = module_map.PAGE.read_text()
    assert text == module_map.page(text), f"{module_map.PAGE.name} {STALE}"

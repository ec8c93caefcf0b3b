"""Generated files equal the current output of their generators; `make docs` writes all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tools import interfaces, module_map
from tools.openapi import document_text
from tools.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
STALE = "is stale: run `make docs`"


def test_the_openapi_document() -> None:
    assert (ROOT / "openapi/openapi.json").read_text() == document_text(), f"openapi.json {STALE}"


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_pages(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"{name} {STALE}"


def test_every_command_and_operation_has_a_section() -> None:
    assert {"## info", "## token create"} <= set(interfaces.commands_page().splitlines())
    listed = set(re.findall(r"^### (\w+ /.*)$", interfaces.operations_page(), re.MULTILINE))
    document = json.loads((ROOT / "openapi/openapi.json").read_text())
    offered = {f"{verb.upper()} {path}" for path, verbs in document["paths"].items() for verb in verbs}
    assert {each for each in offered if not each.startswith("HEAD ")} <= listed


def test_list_of_modules_is_written_into_the_docs_of_this_repository() -> None:
    assert module_map.ROOT == ROOT
    assert "| `planner` |" in module_map.page()

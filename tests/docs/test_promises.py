"""The page on compatibility: every promise and every difference has a test that exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from protoslice.server.registries.hub.paths import TAKEN

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/compatibility.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.(?:py::test_\w+|console::[^`]+))`")


def rows(heading: str) -> list[tuple[str, str]]:
    """Return each statement and its test, in the sections whose headings begin with `heading`."""
    sections = "".join(each for each in PAGE.split("\n## ") if each.startswith(heading))
    cells = re.findall(r"^\| (.+?) \| (.*) \|$", sections, re.MULTILINE)
    return [(said, shown) for said, shown in cells if shown != "test"]


@cache
def defined_in(path: str) -> set[str]:
    kind = r"^## (.+)$" if path.endswith(".console") else r"^ *(?:async )?def (test_\w+)"
    return set(re.findall(kind, (ROOT / path).read_text(), re.MULTILINE))


def test_every_test_that_is_named_exists() -> None:
    named = [each.split("::") for each in NAMED.findall(PAGE)]
    assert len(named) > 100
    assert [
        f"{path}::{test}" for path, test in named if not (ROOT / path).is_file() or test not in defined_in(path)
    ] == []


def test_every_promise_and_every_difference_names_a_test() -> None:
    promised, different = rows("Promises"), rows("Differences")
    assert [said for said, shown in promised + different if not NAMED.fullmatch(shown)] == []
    assert len({said for said, _ in promised}) == len(promised) >= 62
    assert len(different) > 15


def test_reserved_owners_are_those_of_the_code() -> None:
    (names,) = re.findall(r"Owners of repositories cannot be called (.+)\.", PAGE)
    assert set(re.findall(r"`(\w+)`", names)) == set(TAKEN)

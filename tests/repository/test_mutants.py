"""Each planted fault must make its tests fail (only with `-m long`), and its row must match a text in the sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.mutants import MUTANTS, SOURCES, Mutant, survives

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of all files that the tests of planted faults read."""
    folder = tmp_path_factory.mktemp("sources")
    for part in ("service", "tests", "pyproject.toml", "docs", "openapi", "docker", "bench"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
    return folder


def test_each_mutant_has_its_place() -> None:
    places = [(mutant.file, mutant.old) for mutant in MUTANTS]
    assert [(file, old) for file, old in places if old not in (ROOT / SOURCES / file).read_text()] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_mutant_dies(mutant: Mutant, sources: Path) -> None:
    assert survives(mutant, sources) == ""


def test_a_row_without_its_text_fails(tmp_path: Path) -> None:
    (tmp_path / SOURCES).mkdir(parents=True)
    (tmp_path / SOURCES / "a.py").write_text("x = 1")
    assert "update tests/mutants.py" in survives(Mutant("", "a.py", "x = 2", "", ""), tmp_path)

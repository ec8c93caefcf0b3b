"""Corpus of golden files: complete, as its manifest says, and no content stored twice."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.golden import GOLDEN, MANIFEST, folder, stored

TESTS = GOLDEN.parent
NOTES = {"expected.json", "how.txt", "manifest.json", "README.md"}
CODE = {".py", ".pyc", ".mjs"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(top: Path) -> list[Path]:
    return sorted(path for path in top.rglob("*") if path.is_file())


def test_the_manifest_lists_every_file() -> None:
    found = {path.relative_to(GOLDEN).as_posix() for path in _files(GOLDEN) if path.name not in NOTES}
    assert {name for name, facts in MANIFEST.items() if "same" not in facts} == found


@pytest.mark.parametrize("name", MANIFEST)
def test_content_is_as_the_manifest_says(name: str) -> None:
    facts, path = MANIFEST[name], stored(name)
    assert "same" not in MANIFEST[path.relative_to(GOLDEN).as_posix()]
    assert (path.stat().st_size, _sha256(path)) == (facts["size"], facts["sha256"])


def test_no_content_is_stored_twice() -> None:
    places = defaultdict(list)
    for path in _files(TESTS):
        if path.suffix not in CODE and path.stat().st_size:
            places[_sha256(path)].append(path.relative_to(TESTS).as_posix())
    assert [paths for paths in places.values() if len(paths) > 1] == []


def test_a_model_is_put_together_with_the_files_stored_elsewhere() -> None:
    found = {path.name: _sha256(path) for path in _files(folder("paddle_separate")) if path.name not in NOTES}
    listed = {name.rpartition("/")[2]: facts for name, facts in MANIFEST.items() if "/paddle_separate/" in name}
    assert found == {name: facts["sha256"] for name, facts in listed.items()}
    assert any("same" in facts for facts in listed.values())

"""Files in git have ordinary names and are small: a model of 37 MB named `--help` was once committed.

The corpus of golden files is complete by its manifest, and stores no content twice.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.golden import GOLDEN, MANIFEST, folder, stored

ROOT = Path(__file__).parents[2]
MAX_BYTES = 1_000_000
NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+@-]*(?:/[A-Za-z0-9._][A-Za-z0-9._+@-]*)*")


def problems(listing: str) -> list[str]:
    """Return the faults of each line of `git ls-tree -rlz`."""
    found, seen = [], dict[str, str]()
    for line in filter(None, listing.split("\0")):
        facts, _, name = line.partition("\t")
        size = facts.split()[-1]
        if NAME.fullmatch(name) is None:
            found.append(f"{name!r}: rename or remove it")
        if seen.setdefault(name.lower(), name) != name:
            found.append(f"{name} and {seen[name.lower()]}: one file on Windows and macOS; rename one")
        if size.isdigit() and int(size) > MAX_BYTES:
            found.append(f"{name}: {size} bytes, more than {MAX_BYTES}; generate it instead")
    return found


def test_tracked_files_have_ordinary_names_and_sizes() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-tree", "-rlz", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert problems(listing) == []


@pytest.mark.parametrize(
    "line", ["100644 blob 0 12\t--help", "100644 blob 0 12\tdocs/a b.md", "100644 blob 0 37000421\tmodel.onnx"]
)
def test_other_files_are_refused(line: str) -> None:
    assert len(problems(line + "\0")) == 1


def test_names_that_differ_only_in_case_are_refused() -> None:
    assert len(problems("100644 blob 0 1\tREADME.md\x00100644 blob 0 1\tReadme.md\0")) == 1


def test_the_example_model_has_help_and_writes_nothing_for_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/make_model.py", "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "usage:" in done.stdout
    assert list(tmp_path.iterdir()) == []


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

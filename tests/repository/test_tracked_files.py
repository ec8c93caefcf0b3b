"""Files in git have ordinary names and are small: a model of 37 MB named `--help` was once committed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_BYTES = 1_000_000
NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+@-]*(?:/[A-Za-z0-9._][A-Za-z0-9._+@-]*)*")


def problems(listing: str) -> list[str]:
    """Return what is wrong with each line of `git ls-tree -rlz`."""
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

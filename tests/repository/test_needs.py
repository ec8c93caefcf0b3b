"""needs.sh, which `make` runs first, names each thing that a machine lacks, with the way to get it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("awk", "sed", "sh")
SOUND = {
    "python3": "exit 0",
    "cargo": "exit 0",
    "rustc": "echo rustc 1.95.0",
    "cc": "exit 0",
    "curl": "exit 0",
    "df": "echo head; echo /dev/x 1 1 99999999 1% /",
}
OLD_PYTHON = 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac'


def needs(folder: Path, purpose: str, **programs: str | None) -> list[str]:
    """Lines that needs.sh prints on a machine with these programs: shell scripts, None for a missing one."""
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or "")
    for name, script in {**SOUND, **programs}.items():
        if script is not None:
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
    command = ["sh", "tools/needs.sh", "python3", purpose]
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (int(bool(lines)), "")
    return lines


@pytest.mark.parametrize("purpose", ["run", "test"])
def test_a_sound_machine_lacks_nothing(tmp_path: Path, purpose: str) -> None:
    assert needs(tmp_path, purpose) == []


@pytest.mark.parametrize(
    ("programs", "lacking", "remedy"),
    [
        ({"python3": None}, "no python3", "make PYTHON="),
        ({"python3": OLD_PYTHON}, "python3 is Python 3.9.2", "Python 3.11 or later is needed"),
        ({"python3": 'case "$2" in *ensurepip*) exit 1;; esac'}, "virtual environments", "python3-venv"),
        ({"cargo": None}, "no Rust toolchain", "rustup"),
        ({"rustc": "echo rustc 1.70.0"}, "rustc 1.70.0", "rustup update"),
        ({"rustc": "exit 1"}, "rustc does not run", "rustup update"),
        ({"cc": None}, "no C compiler", "apt install gcc"),
        ({"df": "echo head; echo /dev/x 1 1 1048576 1% /"}, "1 GiB are free", "make room"),
    ],
)
def test_the_lack_is_told_in_one_line_with_its_remedy(
    tmp_path: Path, programs: dict[str, str | None], lacking: str, remedy: str
) -> None:
    (line,) = needs(tmp_path, "run", **programs)
    assert lacking in line
    assert remedy in line


def test_curl_is_needed_for_tests_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "test").mkdir()
    assert needs(tmp_path / "run", "run", curl=None) == []
    (line,) = needs(tmp_path / "test", "test", curl=None)
    assert "apt install curl" in line


def test_all_that_lacks_is_told_at_once(tmp_path: Path) -> None:
    assert len(needs(tmp_path, "test", python3=None, cargo=None, curl=None)) == 3

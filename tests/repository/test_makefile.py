"""Targets of the Makefile: their installations, their builds of the core, and their names of programs and files.

A fake Python that only records the calls of pip and maturin replaces the real one. needs.sh, which `make` runs first,
names each missing program of a machine, with the way to get it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools.package_build import NODE

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
case "$*" in
*"-m venv .venv") mkdir -p .venv/bin && cp notes .venv/bin/pip && cp notes .venv/bin/protoslice;;
esac
"""
NOTES = """#!/bin/sh
echo "$(basename $0) $*" >>log
case "$*" in *dev*) cp notes .venv/bin/maturin;; esac
"""
BUILD = """echo build.sh >>log
mkdir -p service/protoslice/server/pages/built && touch service/protoslice/server/pages/built/first.json
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a core of one file, and a `python3` that installs nothing."""
    for name in ("core/src", "protos", "tools", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "Makefile",
        "core/Cargo.toml",
        "tools/needs.sh",
        "tools/programs.sh",
        "pyproject.toml",
        "constraints.txt",
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "core/src/lib.rs").touch()
    for path, script in ((tmp_path / "bin/python3", PYTHON), (tmp_path / "notes", NOTES)):
        path.write_text(script)
        path.chmod(0o755)
    (tmp_path / "web").mkdir()
    (tmp_path / "web/build.sh").write_text(BUILD)
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    return tmp_path


def make(checkout: Path, target: str) -> list[str]:
    """Return the calls of pip, maturin and protoslice that `make TARGET` made."""
    log = checkout / "log"
    log.write_text("")
    environment = os.environ | {"PATH": f"{checkout}/bin:{os.environ['PATH']}", "MAKEFLAGS": ""}
    done = subprocess.run(
        ["make", target], cwd=checkout, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [
        " ".join(word for word in line.split() if not word.startswith("--")) for line in log.read_text().splitlines()
    ]


PAGE = "build.sh"
SERVE = "protoslice serve"


def test_run_installs_what_serving_needs_and_builds_the_core_once(checkout: Path) -> None:
    installed = "pip install constraints.txt .[server,client,cloud,otel,numpy]"
    assert make(checkout, "run") == [installed, PAGE, SERVE]
    assert make(checkout, "run") == [SERVE]


def test_run_builds_a_changed_page_again(checkout: Path) -> None:
    make(checkout, "run")
    (checkout / "web/main.tsx").write_text("// changed")
    later = time.time() + 10
    os.utime(checkout / "web/main.tsx", (later, later))
    assert make(checkout, "run") == [PAGE, SERVE]


def test_run_serves_where_the_page_cannot_be_built(checkout: Path) -> None:
    (checkout / "web/build.sh").write_text("exit 1\n")
    assert make(checkout, "run")[-1] == SERVE


def test_a_changed_core_is_built_again(checkout: Path) -> None:
    make(checkout, "run")
    (checkout / "core/src/lib.rs").write_text("// changed")
    assert make(checkout, "run") == ["pip install .", SERVE]


def test_dev_installs_everything_and_builds_the_core_once(checkout: Path) -> None:
    installed, fetched = make(checkout, "dev")
    assert installed == "pip install constraints.txt .[dev]"
    assert fetched.startswith("pip download")
    assert make(checkout, "run") == [PAGE, SERVE]
    (checkout / "core/src/lib.rs").write_text("// changed")
    assert make(checkout, "run") == ["maturin develop", SERVE]


def test_nothing_is_begun_on_a_machine_that_lacks_something(checkout: Path) -> None:
    (checkout / "bin/python3").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(AssertionError, match=r"Python 3\.11 or later is needed"):
        make(checkout, "run")
    assert not (checkout / ".venv").exists()


def test_programs_of_targets_are_modules() -> None:
    """A program that runs as a file would not find the packages next to `tests`."""
    calls = re.findall(r"\$\(BIN\)/python (.+)", (ROOT / "Makefile").read_text())
    assert [call for call in calls if not call.startswith("-m ")] == []
    modules = {call.split()[1] for call in calls}
    assert {"tests.clients", "bench.run"} <= modules
    assert [module for module in modules if find_spec(module) is None] == []


def test_files_that_targets_name_are_there() -> None:
    named = re.findall(r"\b(?:tests|tools|docker)/[\w/.]+", (ROOT / "Makefile").read_text())
    assert "tests/server/test_memory.py" in named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_programs_and_builds_take_the_same_node() -> None:
    assert NODE in (ROOT / "tools" / "programs.sh").read_text()


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
    """Return the lines of needs.sh on a machine with these programs: shell scripts, or None for a missing one."""
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

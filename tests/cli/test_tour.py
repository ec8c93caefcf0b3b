"""Commands of the README, each of which prints what is shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8000"
README = (ROOT / "README.md").read_text()


def _steps() -> list[tuple[str, str]]:
    """Each command of the tour, and the lines that are to follow it."""
    steps: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            steps.append((command, expected))
    return steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the tour is taken in."""
    folder = tmp_path_factory.mktemp("tour")
    shutil.copytree(ROOT / "docs", folder / "docs")
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service over an empty directory."""
    storage = tmp_path_factory.mktemp("stores").as_uri()
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0"]
    environment = os.environ | {
        "PROTOSLICE_STORAGE": storage,
        "PROTOSLICE_SPACE_WATERMARK_BYTES": "1",
        "PROTOSLICE_LOG_LEVEL": "error",
    }
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().decode().strip()
        finally:
            process.terminate()


def _timeless(text: str) -> str:
    return re.sub(r'"created":"[^"]*"|20\d\d-\d\d-\d\d \d\d:\d\d', "…", text)


def _run(command: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    # A terminal shows both, and a line feed after text that has none.
    shown = done.stdout + done.stderr
    return shown if not shown or shown.endswith("\n") else shown + "\n"


def test_every_command_of_the_tour_answers_as_shown(folder: Path, service: str) -> None:
    steps = _steps()
    assert len(steps) == 9
    settings: list[str] = []
    for command, expected in steps:
        if command.startswith("export "):
            settings.append(command)
        told = "; ".join([*settings, command]).replace(ADDRESS, service)
        shown = _run(told, folder).replace(service, ADDRESS)
        assert _timeless(shown) == _timeless(expected), command

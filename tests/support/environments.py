"""Separate Python environments for clients of other authors, kept in `.make` between runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
_OF_THE_MACHINE: Final = dict(os.environ)
"""The environment for installations, which trust other certificate authorities than the tests do."""


def python_of(*packages: str) -> Path:
    """Return the interpreter of an environment with `packages`; make the environment if it is missing."""
    folder = _folder(packages[0])
    python = folder / "bin/python"
    if not is_made(*packages):
        if folder.is_symlink():
            folder.unlink()  # the folder behind a link belongs to another checkout, and --clear would empty it
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(command, check=True, env=_OF_THE_MACHINE)
        (folder / "ready").write_text(" ".join(packages))
    return python


def is_made(*packages: str) -> bool:
    """Return True if the environment with `packages` exists."""
    ready = _folder(packages[0]) / "ready"
    return ready.exists() and ready.read_text() == " ".join(packages)


def _folder(package: str) -> Path:
    return ROOT / ".make" / package.replace("==", "-")

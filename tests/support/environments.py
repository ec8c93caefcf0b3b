"""Environments of their own for clients that others wrote, kept in `.make` between runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_of(*packages: str) -> Path:
    """The interpreter of an environment with `packages`, made unless it is there."""
    folder = _folder(packages[0])
    python = folder / "bin/python"
    if not is_made(*packages):
        if folder.is_symlink():
            folder.unlink()  # the folder behind a link belongs to another checkout, and --clear would empty it
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "ready").write_text(" ".join(packages))
    return python


def is_made(*packages: str) -> bool:
    """True if the environment with `packages` is there."""
    ready = _folder(packages[0]) / "ready"
    return ready.exists() and ready.read_text() == " ".join(packages)


def _folder(package: str) -> Path:
    return ROOT / ".make" / package.replace("==", "-")

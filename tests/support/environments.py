"""Environments of their own for clients that others wrote, kept in `.make` between runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_of(*packages: str) -> Path:
    """The interpreter of an environment with `packages`, made unless it is there."""
    folder = ROOT / ".make" / packages[0].replace("==", "-")
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "ready").touch()
    return python

"""Version of this build: the version of the release, and between releases also the commit."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

_DESCRIBED: Final = re.compile(
    r"(?:v(?P<release>[^-]+)-(?P<since>[0-9]+)-g)?(?P<commit>[0-9a-f]{7,40})(?P<dirty>-dirty)?"
)
"""What `DESCRIBE` prints."""
DESCRIBE: Final = ("git", "describe", "--tags", "--match", "v*", "--long", "--always", "--dirty", "--abbrev=9")
"""Command whose output names a commit, for a checkout; that of a wheel is in the file `build.txt`."""
_SECONDS: Final = 5


def release() -> str:
    """Return the version of the release that this build is, or of the last release before it."""
    return version("protoslice")


@cache
def build() -> str:
    """Return the version of this build, such as `0.1.0`, `0.1.0+g1a2b3c4d5` or `0.1.0+12.g1a2b3c4d5.dirty`."""
    found = _DESCRIBED.fullmatch(_described())
    if found is None or (found["release"] == release() and found["since"] == "0" and not found["dirty"]):
        return release()
    parts = (found["since"], f"g{found['commit']}", found["dirty"] and "dirty")
    return f"{release()}+{'.'.join(part for part in parts if part)}"


def _described() -> str:
    package = Path(__file__).parent
    root = package.parent.parent
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        if (package / "build.txt").exists():
            return (package / "build.txt").read_text().strip()
        if (root / ".git").exists() and (root / "pyproject.toml").exists():
            clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
            ended = subprocess.run(
                DESCRIBE, cwd=root, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=_SECONDS, check=True,
            )  # fmt: skip
            return ended.stdout.strip()
    return ""

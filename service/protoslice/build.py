"""The version of this build. Between releases, it consists of the last release's version and the commit."""

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
"""The form of the output of `DESCRIBE`."""
DESCRIBE: Final = ("git", "describe", "--tags", "--match", "v*", "--long", "--always", "--dirty", "--abbrev=9")
"""Command whose output names the commit of a checkout. For a wheel, the file `build.txt` contains this output."""
_SECONDS: Final = 5


def release() -> str:
    """Return the version of this release, or, for a build between releases, the version of the last release."""
    return version("protoslice")


@cache
def build() -> str:
    """Return the version of this build, such as `0.1.0`, `0.1.0+g1a2b3c4d5` or `0.1.0+12.g1a2b3c4d5.dirty`.

    The parts after `+` are the number of commits since the release, the commit, and a mark for uncommitted changes.
    """
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

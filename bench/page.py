"""Benchmark of the page in a browser; says so when the page or its browser is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench.timing import Row

from protoslice.server.pages.built import assets


def can_be_looked_at() -> bool:
    """True when there is a page, and a browser to look at it."""
    return bool(assets()) and find_spec("playwright") is not None and shutil.which("chromium") is not None


def page(folder: Path, scale: float) -> Iterator[Row]:
    """Rows about the page."""
    _check()
    from bench.visits import visits  # needs Playwright

    yield from visits(folder, scale)


def differences(folder: Path, scale: float) -> Iterator[Row]:
    """Rows about the picture of what changed between two versions."""
    _check()
    from bench.visits import differences  # needs Playwright

    yield from differences(folder, scale)


def _check() -> None:
    if not can_be_looked_at():
        raise SystemExit("build the page first, and get its browser: make browser does both")

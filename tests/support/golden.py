"""The corpus of files that other programs wrote: `tests/golden`, described by its README and manifest."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
MODELS: Final = GOLDEN / "models"
CHUNKED: Final = GOLDEN / "chunked"
RIEGELI: Final = GOLDEN / "riegeli"
MANIFEST: Final[dict[str, dict[str, Any]]] = json.loads((GOLDEN / "manifest.json").read_text())


def stored(name: str) -> Path:
    """Return the path of the corpus file `name`; equal files are stored once, so it may have another name."""
    return GOLDEN / str(MANIFEST[name].get("same", name))


@cache
def _assembled() -> TemporaryDirectory[str]:
    # A folder lives as long as the process, so that one assembled folder serves all tests.
    return TemporaryDirectory(prefix="golden-")


@cache
def folder(case: str) -> Path:
    """Return a folder with all files of the model `case`, including files that are stored with another model."""
    missing = [name for name, facts in MANIFEST.items() if name.startswith(f"models/{case}/") and "same" in facts]
    if not missing:
        return MODELS / case
    root = Path(_assembled().name)
    shutil.copytree(MODELS / case, root / case)
    shutil.copy(MODELS / "x", root / "x")  # a file outside of the model, which hostile cases refer to
    for name in missing:
        shutil.copy(stored(name), root / name.removeprefix("models/"))
    return root / case

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
    """Path of the content of the corpus file `name`, which may be stored under the name of an equal file."""
    return GOLDEN / str(MANIFEST[name].get("same", name))


@cache
def _assembled() -> TemporaryDirectory[str]:
    # Lives as long as the process, so that folders assembled once serve all tests.
    return TemporaryDirectory(prefix="golden-")


@cache
def folder(case: str) -> Path:
    """Folder of the model `case` with all its files, also those that are stored with another model."""
    missing = [name for name, facts in MANIFEST.items() if name.startswith(f"models/{case}/") and "same" in facts]
    if not missing:
        return MODELS / case
    root = Path(_assembled().name)
    shutil.copytree(MODELS / case, root / case)
    shutil.copy(MODELS / "x", root / "x")  # the file outside of a model that hostile cases name
    for name in missing:
        shutil.copy(stored(name), root / name.removeprefix("models/"))
    return root / case

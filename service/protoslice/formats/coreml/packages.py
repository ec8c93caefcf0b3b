"""Packages of Core ML: which of their files is the model, as their manifest says."""

from __future__ import annotations

import json
import posixpath
from typing import Final

__all__ = ["LARGEST_MANIFEST", "is_manifest", "named_root"]

LARGEST_MANIFEST: Final = 1 << 20
"""Bytes: a larger file is no manifest."""
_NAME: Final = "Manifest.json"


def is_manifest(path: str) -> bool:
    """Whether the file at `path` may be the manifest of a package."""
    return posixpath.basename(path) == _NAME


def named_root(manifest: str, content: bytes) -> str | None:
    """The path of the model that the manifest at the path `manifest` names; none where it is no manifest of a package.

    Nobody has looked whether such a file is there.
    """
    try:
        said = json.loads(content)
        place = said["itemInfoEntries"][said["rootModelIdentifier"]]["path"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(place, str):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(manifest), "Data", place))

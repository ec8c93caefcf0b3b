"""Packages of Core ML: the model file that a manifest names."""

from __future__ import annotations

import json
import posixpath
from typing import Final

LARGEST_MANIFEST: Final = 1 << 20
"""Limit in bytes: larger files are not read as manifests."""
_NAME: Final = "Manifest.json"


def is_manifest(path: str) -> bool:
    """True when the file at `path` may be the manifest of a package."""
    return posixpath.basename(path) == _NAME


def named_root(manifest: str, content: bytes) -> str | None:
    """The path of the model that the manifest at `manifest` names; None if malformed.

    The file at that path may be absent.
    """
    try:
        said = json.loads(content)
        place = said["itemInfoEntries"][said["rootModelIdentifier"]]["path"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(place, str):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(manifest), "Data", place))

"""Where files lie that a model refers to: places that somebody wrote into it, and which may be anything."""

from __future__ import annotations

import posixpath

from protoslice.errors import CorruptModel

__all__ = ["beside"]


def beside(root: str, location: str) -> str:
    """The path, within the model, of the file that `location` names from where the file `root` lies."""
    segments = location.split("/")
    if not location or location.endswith("/"):
        raise CorruptModel(f"external data lies in {location!r}, which names no file")
    if location.startswith("/") or ".." in segments or "\\" in location or "\0" in location:
        raise CorruptModel(f"external data lies in {location!r}, which leads out of the model: it is not followed")
    return posixpath.normpath(posixpath.join(posixpath.dirname(root), location))

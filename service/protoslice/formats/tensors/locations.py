"""Locations of external data, as a model gives them: untrusted relative paths."""

from __future__ import annotations

import posixpath

from protoslice.errors import CorruptModel


def beside(root: str, location: str) -> str:
    """The path within the model of the file at `location`, relative to the folder of `root`.

    `CorruptModel` for a location that names no file, is absolute, or leads out of that folder.
    """
    inside = posixpath.normpath(location)
    if inside == "." or location.endswith("/"):
        raise CorruptModel(f"External data has the location {location!r}, which is not a file name")
    if location.startswith("/") or inside.partition("/")[0] == ".." or "\\" in location or "\0" in location:
        raise CorruptModel(f"External data has the location {location!r} outside of the model: it is not read")
    return posixpath.normpath(posixpath.join(posixpath.dirname(root), inside))

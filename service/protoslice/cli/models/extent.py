"""The files on the disk that a model takes, with their sizes."""

from __future__ import annotations

import os
from dataclasses import dataclass

from protoslice import LocalModel
from protoslice.formats.report import report_on

__all__ = ["Extent", "ExtentFile", "extent_of"]


@dataclass(frozen=True, slots=True)
class ExtentFile:
    """One file of a model."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The files of a model."""

    size: int
    """Bytes of all files."""
    root: str
    root_size: int
    files: tuple[ExtentFile, ...]
    """The root first."""
    missing: tuple[str, ...]
    """Files that the model refers to, and that are not there."""


def extent_of(name: str, model: LocalModel, root_size: int) -> Extent:
    """Extent of the model `name`: all files of a directory, else the root and the files of its tensors."""
    root, report = model.model.root, report_on(model.model, most=None)
    place, beside = (name, model.model.files) if os.path.isdir(name) else (os.path.dirname(name), report.files)
    others = (ExtentFile(path, os.path.getsize(os.path.join(place, path))) for path in beside if path != root)
    parts = (ExtentFile(root, root_size), *others)
    return Extent(sum(part.size for part in parts), root, root_size, parts, report.missing)

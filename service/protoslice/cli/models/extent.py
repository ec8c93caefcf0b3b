"""Extent of a model: its files with their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protoslice.cli.models.files import NamedFiles
from protoslice.concurrency import finish
from protoslice.formats.report import report_job
from protoslice.library.models import LocalModel


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
    folder: Mapping[str, int] | None
    """Number and size of all files of the folder; None for a model that is named by its file."""


def extent_of(place: NamedFiles | None, model: LocalModel, root_size: int) -> Extent:
    """Extent of `model`: its root and the files with its tensors, wherever it was opened; `place` is the folder."""
    root, report = model.model.root, finish(report_job(model.model, most=None))
    others = (ExtentFile(path, model.model.files[path].size) for path in report.files if path != root)
    parts = (ExtentFile(root, root_size), *others)
    folder = None
    if place is not None and place.named is None:
        sizes = [place.files.size_of(path) for path in place.files]
        folder = {"files": len(sizes), "size": sum(sizes)}
    return Extent(sum(part.size for part in parts), root, root_size, parts, report.missing, folder)

"""Places of a store's files on a disk, which may take two names for one."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from protoslice.client.download.partial import write_failure
from protoslice.errors import Conflict, IntegrityError
from protoslice.file_names import CONTROL_FOLDERS, is_version_control

_BARE: Final = frozenset({"head", "objects", "refs", "commondir"})
"""What git looks for in a folder that may be a repository without a `.git`; it then obeys the `config` there."""


def places_below(folder: Path, paths: Iterable[str]) -> dict[str, Path]:
    """Place below `folder` of each of `paths`; `Conflict` for two that the disk takes for one file.

    Raise `Conflict` as well if a link in `folder` leads somewhere else, or git would take a folder for a repository:
    its settings run commands.
    """
    places = {path: _inside(folder, path) for path in paths}
    check_folders(folder, places)
    if alike := list(_alike(places)):
        _check(folder, alike)
    return places


def check_folders(folder: Path, paths: Iterable[str]) -> None:
    """Raise `Conflict` if writing `paths` into `folder` follows a link, or makes or changes a git repository."""
    entries: dict[Path, set[str]] = {folder: set()}
    for path in paths:
        place = folder
        for step in path.split("/"):
            entries.setdefault(place, set()).add(step)
            place /= step
    for place, added in entries.items():
        if place != folder and place.is_symlink():
            raise Conflict(f"{place} is a link, which the download does not follow: remove it, or use another folder")
        _check_repository(place, added)


def _check_repository(place: Path, added: set[str]) -> None:
    """Raise `Conflict` if one of the entries `added` to a folder is that of version control, or makes it a repository.

    The disk decides which names are one, beside their spelling.
    """
    control = [place / name for name in CONTROL_FOLDERS if os.path.lexists(place / name)]
    for name in added if control else ():
        if os.path.lexists(place / name) and any(os.path.samefile(place / name, each) for each in control):
            raise Conflict(f"{place / name} is a folder of version control here: download into another folder")
    try:
        there = set(os.listdir(place)) if place.is_dir() else set()
    except OSError:
        there = set()  # that nothing can be written there is found later
    found = {name.casefold() for name in there | added} & _BARE
    if "head" in found and (found >= {"objects", "refs"} or "commondir" in found):
        raise Conflict(
            f"git would take {place} for a repository, whose settings may run commands: download the files one by one "
            "into other folders"
        )


def _inside(folder: Path, path: str) -> Path:
    """Path of a store's file below `folder`; `IntegrityError` for one that leads out of the folder.

    A service must not choose where else a client writes.
    """
    steps = path.split("/")
    if any(step in {"", ".", ".."} or "\\" in step or "\0" in step for step in steps):
        raise IntegrityError(f"The service lists a file with the unsafe path {path!r}")
    if is_version_control(path):
        raise Conflict(
            f"{path!r} is in a folder of version control: download this file by its path, under another name"
        )
    return folder.joinpath(*steps)


def _alike(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of paths that differ in case, or in the composition of characters, alone."""
    met: dict[str, str] = {}
    for path in paths:
        folded = unicodedata.normalize("NFC", path.casefold())
        if met.setdefault(folded, path) != path:
            yield met[folded], path


def _check(folder: Path, alike: list[tuple[str, str]]) -> None:
    """Try out the pairs in a temporary directory of `folder`; `Conflict` for a pair that is one there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", dir=folder) as trial:
            for one, other in alike:
                place = _inside(Path(trial), one)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
                if _inside(Path(trial), other).exists():
                    raise Conflict(
                        f"{one!r} and {other!r} would be the same file on this disk: pull them one at a time into "
                        "different folders"
                    )
    except OSError as error:
        raise write_failure(folder, error) from error

"""Places of a store's files on a disk, which may take two names for one."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from protoslice.client.download.partial import write_failure
from protoslice.errors import Conflict, IntegrityError


def places_below(folder: Path, paths: Iterable[str]) -> dict[str, Path]:
    """Place below `folder` of each of `paths`; `Conflict` for two that the disk takes for one file."""
    places = {path: _inside(folder, path) for path in paths}
    if alike := list(_alike(places)):
        _check(folder, alike)
    return places


def _inside(folder: Path, path: str) -> Path:
    """Path of a store's file below `folder`; `IntegrityError` for one that leads out of the folder.

    A service must not choose where else a client writes.
    """
    steps = path.split("/")
    if any(step in {"", ".", ".."} or "\\" in step or "\0" in step for step in steps):
        raise IntegrityError(f"The service lists a file with the unsafe path {path!r}")
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

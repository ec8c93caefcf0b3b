"""Downloads of views and of the files of a store, which check all paths before they write files.

Small files are downloaded concurrently. Large files follow one after the other, each with concurrent requests.
"""

from __future__ import annotations

import os
import re
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from protoslice.client.download.cache import Cache
from protoslice.client.download.files import Download, Downloaded, Progress, retry_if_changed, same_file
from protoslice.client.download.partial import write_failure
from protoslice.client.download.remote import DIGESTED, Remote
from protoslice.client.http.connection import Connection, RetryPolicy, url_path
from protoslice.client.threads import DaemonPool
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.facts import File, Piece, Store
from protoslice.file_names import CONTROL_FOLDERS, is_version_control
from protoslice.tensors.omitted import Omitted

ONNX: Final = "onnx"
"""Name of a view that is a folder of files."""
SAFETENSORS: Final = "safetensors"
"""Name of a view that is a folder of files if the parameter `shards` limits their size."""
WHOLE_SHARD: Final = "model.safetensors"
SHARD_INDEX: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"model-[0-9]{5,9}-of-[0-9]{5,9}\.safetensors")
ONNX_FILES: Final = ("weights.bin", "model.onnx")
"""Files of the view `onnx`. The model comes last, because it is useless without its weights."""
SMALL_FILE: Final = DIGESTED
"""Maximum number of bytes in a small file. Such a file arrives in one response, whose time is mainly latency."""
_BARE: Final = frozenset({"head", "objects", "refs", "commondir"})
"""Names, in lower case, of entries by which git takes a folder without `.git` for a repository.

git obeys the file `config` in such a folder.
"""

T = TypeVar("T")
Fetch = Callable[[File, Progress | None], T]


@dataclass(frozen=True, slots=True)
class DownloadOptions:
    """The options of downloads: retry policy, number of concurrent requests, cache of pieces, progress callback."""

    retries: RetryPolicy
    parallel: int
    cache: Cache | None
    progress: Progress | None


def target_of(target: str | os.PathLike[str], view: str | None) -> Path:
    """Return the path of the file or folder to write.

    A `target` that ends with a slash names a folder, which is created. If `target` is a folder and a view is
    downloaded, the file in the folder is named after the view.
    """
    path = folder_of(target) if os.fspath(target).endswith(os.sep) else Path(target)
    return path / view.rpartition("/")[2] if view is not None and path.is_dir() else path


def is_folder(view: str, params: Sequence[tuple[str, str]]) -> bool:
    """Return True if a view with these parameters is a folder of files."""
    return view == ONNX or (view == SAFETENSORS and any(name == "shards" for name, _ in params))


def is_shard(name: object) -> bool:
    """Return True if `name` is a valid name of a safetensors file in an index."""
    return isinstance(name, str) and _SHARD.fullmatch(name) is not None


def folder_of(target: str | os.PathLike[str]) -> Path:
    """Return the path of the folder `target`, and create the folder if it does not exist."""
    path = Path(target)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failure(path, error) from error
    return path


def download_view(
    make: Callable[[], Remote],
    target: Path,
    terms: DownloadOptions,
    pieces: Callable[[], Sequence[Piece]] | None = None,
) -> Downloaded:
    """Write a view to `target`. `make` opens the view, and is called again if the view changes during the download."""
    return retry_if_changed(
        make,
        lambda remote: Download(
            remote=remote,
            target=target,
            parallel=terms.parallel,
            retries=terms.retries,
            progress=terms.progress,
            cache=terms.cache,
            pieces=pieces,
        ).run(),
    )


class StoreFiles:
    """The files of one store, which can be downloaded."""

    def __init__(self, connection: Connection, store: Store, pieces: PiecesByFile, terms: DownloadOptions) -> None:
        self._connection = connection
        self._store = store
        self._pieces = pieces
        self._terms = terms

    def one(self, path: str, target: Path) -> Downloaded:
        """Write the store's file at `path` to `target`; raise `NotFound` if the store has no such file."""
        for file in self._store.files:
            if file.path == path:
                check_folders(target.parent, [target.name])
                return self._fetch(file, target, self._terms)
        raise NotFound(f"Store {self._store.id} has no file {path!r}")

    def all(self, target: Path) -> list[Downloaded]:
        """Write all files into the folder `target`.

        If the store has one file, and `target` is no folder, the file is written to `target` itself.
        Files of version control, such as `.git/config`, are left out with a warning. Older versions of the service
        accepted such files.
        """
        paths = [file.path for file in self._store.files if not is_version_control(file.path)]
        gone = [file.path for file in self._store.files if is_version_control(file.path)]
        if omitted := Omitted.of(len(gone), gone, what="file"):
            warnings.warn(
                f"{omitted}: in this folder, they would change settings of version control", UserWarning, stacklevel=2
            )
        alone = len(paths) == len(self._store.files) == 1 and not target.is_dir()
        if alone:
            check_folders(target.parent, [target.name])
        places = {paths[0]: target} if alone else paths_in(target, paths)

        def fetch(file: File, progress: Progress | None) -> Downloaded:
            return self._fetch(file, places[file.path], replace(self._terms, progress=progress))

        files = [file for file in self._store.files if file.path in places]
        return each_file(files, fetch, self._terms.parallel, self._terms.progress)

    def _fetch(self, file: File, target: Path, terms: DownloadOptions) -> Downloaded:
        if same_file(target, file.size, file.sha256):
            if terms.progress is not None:
                terms.progress(file.size, file.size)
            return Downloaded(target, file.size, 0)
        path = url_path("v1", "stores", self._store.id, "files", *file.path.split("/"))
        lean = terms.cache is not None
        return download_view(
            lambda: Remote(self._connection, path, size=file.size, sha256=file.sha256, lean=lean),
            target,
            terms,
            lambda: self._pieces.of(file.path),
        )


def each_file(files: Sequence[File], fetch: Fetch[T], parallel: int, progress: Progress | None) -> list[T]:
    """Call `fetch` for each file and return the results in the order of `files`.

    `progress` receives the sums over all files.
    """
    total = _Total(sum(file.size for file in files), progress)
    done: dict[str, T] = {}

    def one(file: File) -> None:
        done[file.path] = fetch(file, total.part())

    with DaemonPool(parallel, "protoslice-file") as pool:
        for waiting in [pool.submit(partial(one, file)) for file in files if file.size <= SMALL_FILE]:
            waiting.result()
    for file in files:
        if file.size > SMALL_FILE:
            one(file)
    return [done[file.path] for file in files]


class PiecesByFile:
    """The pieces of a store by file. The first use requests them from the service."""

    def __init__(self, ask: Callable[[], Iterable[Piece]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._found: dict[str, list[Piece]] | None = None

    def of(self, path: str) -> list[Piece]:
        """Return the pieces of the file at `path`, in order."""
        with self._lock:
            if self._found is None:
                found: dict[str, list[Piece]] = {}
                for piece in self._ask():
                    found.setdefault(piece.file, []).append(piece)
                self._found = found
            return self._found.get(path, [])


class _Total:
    """The sum of the progress of several files, which several threads may download."""

    def __init__(self, size: int, progress: Progress | None) -> None:
        self._size = size
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def part(self) -> Progress | None:
        """Return the progress callback for one of the files, or None if the caller passed no callback."""
        if self._progress is None:
            return None
        before = 0

        def told(done: int, _: int | None) -> None:
            nonlocal before
            with self._lock:
                self._done += done - before
                before = done
                if self._progress is not None:
                    self._progress(self._done, self._size)

        return told


def paths_in(folder: Path, paths: Iterable[str]) -> dict[str, Path]:
    """Return the local path below `folder` for each of `paths`.

    Raise `Conflict` if two of `paths` name the same file on this disk, or if a path contains a link. Also raise
    `Conflict` if git would take a folder for a repository, because settings of a repository can run commands.
    """
    places = {path: _inside(folder, path) for path in paths}
    check_folders(folder, places)
    if alike := list(_case_collisions(places)):
        _check(folder, alike)
    return places


def check_folders(folder: Path, paths: Iterable[str]) -> None:
    """Raise `Conflict` if writing `paths` into `folder` would follow a link, or create or change a git repository."""
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
    """Raise `Conflict` if the entries `added` change a repository of version control in `place`, or create one.

    Names that differ may still name the same file on this disk, so existing files are compared by identity.
    """
    control = [place / name for name in CONTROL_FOLDERS if os.path.lexists(place / name)]
    for name in added if control else ():
        if os.path.lexists(place / name) and any(os.path.samefile(place / name, each) for each in control):
            raise Conflict(f"{place / name} is a folder of version control on this disk: download into another folder")
    try:
        there = set(os.listdir(place)) if place.is_dir() else set()
    except OSError:
        there = set()  # an unreadable folder raises an error later, when a file is written into it
    found = {name.casefold() for name in there | added} & _BARE
    if "head" in found and (found >= {"objects", "refs"} or "commondir" in found):
        raise Conflict(
            f"The files would turn {place} into a git repository, whose settings can run commands: download them one "
            "by one into other folders"
        )


def _inside(folder: Path, path: str) -> Path:
    """Return the local path below `folder` for the path of a store's file.

    Raise `IntegrityError` for a path that could lead out of the folder, because a service must not make a client write
    elsewhere. Raise `Conflict` for a file of version control.
    """
    steps = path.split("/")
    if any(step in {"", ".", ".."} or "\\" in step or "\0" in step for step in steps):
        raise IntegrityError(f"The service lists a file with the unsafe path {path!r}")
    if is_version_control(path):
        raise Conflict(
            f"{path!r} is in a folder of version control: download this file by its path, under another name"
        )
    return folder.joinpath(*steps)


def _case_collisions(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of paths that differ only in case, or in the Unicode composition of characters."""
    met: dict[str, str] = {}
    for path in paths:
        folded = unicodedata.normalize("NFC", path.casefold())
        if met.setdefault(folded, path) != path:
            yield met[folded], path


def _check(folder: Path, alike: list[tuple[str, str]]) -> None:
    """Create similar paths in a temporary directory below `folder`, to find out whether the disk distinguishes them.

    Raise `Conflict` for a pair that names the same file.
    """
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

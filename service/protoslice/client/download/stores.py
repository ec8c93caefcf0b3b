"""Downloads of stores: a view, or files with the digests that the store lists."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from protoslice.client.download.cache import Cache
from protoslice.client.download.files import Download, Downloaded, Progress, same_file, with_fresh_remote
from protoslice.client.download.folders import PiecesByFile, each_file
from protoslice.client.download.partial import write_failure
from protoslice.client.download.places import check_folders, places_below
from protoslice.client.download.remote import Remote
from protoslice.client.http.connection import Connection, RetryPolicy, url_path
from protoslice.errors import NotFound
from protoslice.facts import File, Piece, Store
from protoslice.file_names import is_version_control
from protoslice.tensors.omitted import Omitted

ONNX: Final = "onnx"
"""View that is a folder of files."""
SAFETENSORS: Final = "safetensors"
"""View that is a folder of files if their size is given."""
WHOLE_SHARD: Final = "model.safetensors"
SHARD_INDEX: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"model-[0-9]{5,9}-of-[0-9]{5,9}\.safetensors")
ONNX_FILES: Final = ("weights.bin", "model.onnx")
"""Return the files of that folder; the model is last, since it is useless without its weights."""


@dataclass(frozen=True, slots=True)
class DownloadTerms:
    """Terms of downloads: retries, concurrent requests, cache of pieces, receiver of progress."""

    retries: RetryPolicy
    parallel: int
    cache: Cache | None
    progress: Progress | None


def target_of(target: str | os.PathLike[str], view: str | None) -> Path:
    """The file to write, or the folder; a view that goes to a folder has its own name there.

    A text that ends with a slash is a folder, which is made.
    """
    path = folder_of(target) if os.fspath(target).endswith(os.sep) else Path(target)
    return path / view.rpartition("/")[2] if view is not None and path.is_dir() else path


def is_folder(view: str, params: Sequence[tuple[str, str]]) -> bool:
    """True for a view that is a folder of files."""
    return view == ONNX or (view == SAFETENSORS and any(name == "shards" for name, _ in params))


def is_shard(name: object) -> bool:
    """True for a file name that an index may have."""
    return isinstance(name, str) and _SHARD.fullmatch(name) is not None


def folder_of(target: str | os.PathLike[str]) -> Path:
    """The folder `target`, which is made unless it exists."""
    path = Path(target)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failure(path, error) from error
    return path


def download_view(
    make: Callable[[], Remote],
    target: Path,
    terms: DownloadTerms,
    pieces: Callable[[], Sequence[Piece]] | None = None,
) -> Downloaded:
    """Write a view to `target`; `make` opens the view, and again when it has changed meanwhile."""
    return with_fresh_remote(
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
    """Files of one store, to be downloaded."""

    def __init__(self, connection: Connection, store: Store, pieces: PiecesByFile, terms: DownloadTerms) -> None:
        self._connection = connection
        self._store = store
        self._pieces = pieces
        self._terms = terms

    def one(self, path: str, target: Path) -> Downloaded:
        """Write the file at `path` to `target`; `NotFound` when the store has no such file."""
        for file in self._store.files:
            if file.path == path:
                check_folders(target.parent, [target.name])
                return self._fetch(file, target, self._terms)
        raise NotFound(f"Store {self._store.id} has no file {path!r}")

    def all(self, target: Path) -> list[Downloaded]:
        """Write all files into the folder `target`; the only file of a store to `target` itself, if no folder.

        Files of version control, which services of older versions took, are left out with a warning.
        """
        paths = [file.path for file in self._store.files if not is_version_control(file.path)]
        gone = [file.path for file in self._store.files if is_version_control(file.path)]
        if omitted := Omitted.of(len(gone), gone, what="file"):
            warnings.warn(f"{omitted}: version control would obey them in this folder", UserWarning, stacklevel=2)
        alone = len(paths) == len(self._store.files) == 1 and not target.is_dir()
        if alone:
            check_folders(target.parent, [target.name])
        places = {paths[0]: target} if alone else places_below(target, paths)

        def fetch(file: File, progress: Progress | None) -> Downloaded:
            return self._fetch(file, places[file.path], replace(self._terms, progress=progress))

        files = [file for file in self._store.files if file.path in places]
        return each_file(files, fetch, self._terms.parallel, self._terms.progress)

    def _fetch(self, file: File, target: Path, terms: DownloadTerms) -> Downloaded:
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

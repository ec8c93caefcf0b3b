"""Opening of sources: a path, a URI, bytes or a file object becomes a source, or a set of files."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

from protoslice.errors import InvalidInput
from protoslice.sources.files import BytesSource, FileObjectSource, FileSource, Folder
from protoslice.sources.source import Closable, FileSet, RangeSource
from protoslice.uris import is_uri, local_path

SourceLike = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | RangeSource


def as_source(x: SourceLike, storage_options: Mapping[str, str] | None = None) -> RangeSource:
    """A range source over a path, a URI, bytes or a seekable binary file.

    Range sources are returned as they are. `storage_options` are those of the storage at a URI; without them
    PROTOSLICE_STORAGE_OPTIONS counts. `InvalidInput` for any other object, or an unknown scheme.
    """
    if is_uri(x):
        from protoslice.sources.remote import open_object  # asyncio and TLS, which a local file needs not

        uri = cast(str, x)
        path = local_path(uri)
        return open_object(uri, storage_options) if path is None else FileSource(path)
    if isinstance(x, str | os.PathLike):
        return FileSource(x)
    if isinstance(x, bytes | bytearray | memoryview):
        return BytesSource(x)
    if (file := _as_file(x)) is not None:
        return FileObjectSource(file)
    if hasattr(x, "size") and hasattr(x, "read"):
        return cast(RangeSource, x)
    raise InvalidInput(
        f"Cannot open {type(x).__name__}: pass a path, a URI, bytes, a seekable binary file, or an "
        "object with `size` and `read(offset, length)`"
    )


def filename_of(source: SourceLike) -> str | None:
    """File name of `source` without folders; None for bytes and for sources without a name."""
    name = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return os.path.basename(os.fspath(name)) if isinstance(name, str | os.PathLike) else None


def opened_by(source: RangeSource, x: SourceLike) -> list[Closable]:
    """`source`, to be closed, when `as_source(x)` has opened a file or a storage; else nothing."""
    return [source] if source is not x and isinstance(source, Closable) else []


def files_at(
    name: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> tuple[FileSet, str | None]:
    """The folder at the path or URI `name` and None, or that around the file there and the file's name.

    `NotFound` for a URI that names neither; a missing local file is reported when it is opened.
    """
    if is_uri(name):
        from protoslice.sources.remote import open_folder

        uri = os.fspath(name)
        path = local_path(uri)
        if path is None:
            return open_folder(uri, storage_options)
        name = path
    place = Path(name)
    return (Folder(place), None) if place.is_dir() else (Folder(place.parent, place.name), place.name)


def _as_file(x: object) -> BinaryIO | None:
    if isinstance(x, io.TextIOBase):
        raise InvalidInput("Open the file object in binary mode")
    seekable = getattr(x, "seekable", None)
    return cast(BinaryIO, x) if seekable is not None and seekable() else None

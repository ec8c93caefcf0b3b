"""Tar archives of stores: headers that are computed, and files where they lie."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence

from protoslice import _core
from protoslice.facts import File


def tar_of(files: Sequence[File]) -> _core.Rope:
    """The rope of a POSIX archive of `files`, of which number n is source n.

    The files alone decide about its bytes: owners, modes and times are the same in every archive.
    """
    pieces: list[bytes | tuple[int, int, int]] = []
    behind = b""
    for number, file in enumerate(files):
        pieces.append(behind + _header(file))
        if file.size:
            pieces.append((number, 0, file.size))
        behind = bytes(-file.size % tarfile.BLOCKSIZE)
    pieces.append(behind + bytes(2 * tarfile.BLOCKSIZE))
    return _core.Rope(pieces)


def _header(file: File) -> bytes:
    entry = tarfile.TarInfo(file.path)
    entry.size = file.size
    # One fixed form, for what Python's default may become: long and other names, and more than 8 GiB, in pax records.
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")

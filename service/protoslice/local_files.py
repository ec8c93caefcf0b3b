"""Functions for local files: private folders, durable replacement (safe in a power failure), and locks."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents, which only this user can access, even if the umask allows more."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def replace_durably(temporary: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a complete file to `target`, after writing its content to the disk.

    After a power failure, `target` is either the old file or the complete new file. When the function returns, the new
    file is on the disk.
    """
    _sync(temporary)
    os.replace(temporary, target)
    _sync(os.path.dirname(os.path.abspath(target)))


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yield the name of a temporary file in the folder of `path`.

    At the end of the `with` block, the temporary file durably replaces `path`. After an error, the temporary file is
    removed.
    """
    temporary = os.path.join(os.path.dirname(path), f".protoslice-{secrets.token_hex(8)}")
    try:
        yield temporary
        replace_durably(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _sync(path: str | os.PathLike[str]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock(fd: int, path: Path) -> None:
    """Lock an open file exclusively until it is closed.

    Raise `BlockingIOError` if another process has the lock. Raise `FileNotFoundError` if `path` names another file.
    """
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if os.stat(path).st_ino != os.fstat(fd).st_ino:
        raise FileNotFoundError

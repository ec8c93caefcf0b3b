"""Locks on files for one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(fd: int, path: Path) -> None:
    """Lock an open file exclusively until it is closed.

    `BlockingIOError` when another process holds the lock, `FileNotFoundError` when the file is no longer at `path`.
    """
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if os.stat(path).st_ino != os.fstat(fd).st_ino:
        raise FileNotFoundError

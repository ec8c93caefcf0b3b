"""Files that one process at a time goes on with."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["lock"]


def lock(fd: int, path: Path) -> None:
    """Make the open file ours alone until it is closed. Raises where it is another's, or is not at `path` any more."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if os.stat(path).st_ino != os.fstat(fd).st_ino:
        raise FileNotFoundError

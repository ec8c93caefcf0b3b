"""Journal of a push on the local disk, which lets another process resume the push."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from protoslice.client.upload.bodies import FileStamp, UploadFile
from protoslice.local_files import lock, private_folder
from protoslice.sources.source import ClosedAtEnd

_KEPT_SECONDS: Final = 30 * 86400
"""Age at which journals are removed; a service keeps an idle upload for a day by default."""
_LONGEST: Final = 16 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Upload begun for a file, with the file's stamp at that time."""

    stamp: FileStamp
    upload: str
    """Last segment of the upload's URL."""


class Journal(ClosedAtEnd):
    """Journal of the uploads of one push, with one line for each upload when it begins.

    When another push holds the journal, or the disk is full, the journal is not `lasting`, and a later push sends more.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._fd = -1
        if path is not None:
            with suppress(OSError):
                self._fd = _locked(path)
        self.entries: Mapping[str, JournalEntry] = _entries(self._fd) if self.lasting else {}
        """Entries found when the journal was opened, by file."""

    @classmethod
    def of(cls, url: str, pushed: Path, type: str | None) -> Journal:
        """Return the journal of pushes of a file or folder to the service at `url`."""
        key = json.dumps([url, os.path.realpath(pushed), type])
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        try:
            folder = default_folder()
            private_folder(folder)
            _sweep(folder)
        except (OSError, RuntimeError):  # no home directory, or no access to it
            return cls()
        return cls(folder / f"{name}.jsonl")

    @property
    def lasting(self) -> bool:
        """True when another process will find the entries."""
        return self._fd >= 0

    def note(self, item: UploadFile, upload: str) -> None:
        """Record that an upload has begun for a file."""
        if item.stamp is None or not self.lasting:
            return
        line = json.dumps({"file": item.path, "upload": upload, **asdict(item.stamp)})
        try:
            os.write(self._fd, f"\n{line}\n".encode())  # the first line feed ends a line cut off by a crash
        except OSError:
            self.remove()

    def remove(self) -> None:
        """Remove the journal when it is no longer needed."""
        if self._path is not None and self.lasting:
            with suppress(OSError):
                self._path.unlink()
        self.close()

    def close(self) -> None:
        """Close the journal and keep it for another process."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def default_folder() -> Path:
    """Return the folder of journals: `$XDG_STATE_HOME/protoslice/uploads`, by default below `~/.local/state`."""
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return base / "protoslice" / "uploads"


def _locked(path: Path) -> int:
    """Return the descriptor of the file at `path`, locked; raise `OSError` when another process holds the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        lock(fd, path)
        os.utime(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _entries(fd: int) -> dict[str, JournalEntry]:
    """Return the entries of a journal by file; unreadable lines, such as those cut off by a crash, are skipped."""
    found = {}
    with suppress(OSError):
        for line in os.pread(fd, _LONGEST, 0).splitlines():
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                path, entry = _entry(json.loads(line))
                found[path] = entry
    return found


def _entry(said: Mapping[str, Any]) -> tuple[str, JournalEntry]:
    path, upload = said["file"], said["upload"]
    if not (isinstance(path, str) and isinstance(upload, str) and _NAME.fullmatch(upload)):
        raise ValueError
    return path, JournalEntry(FileStamp(said["size"], said["mtime_ns"], said["inode"]), upload)


def _sweep(folder: Path) -> None:
    """Remove journals unused for `_KEPT_SECONDS`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_SECONDS:
                    os.unlink(entry.path)

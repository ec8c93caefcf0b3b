"""The journal of a push: a local file with which another process can resume the push."""

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
"""Age in seconds at which unused journals are removed. By default, a service keeps an idle upload only for a day."""
_LONGEST: Final = 16 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The entry for an upload that has begun."""

    stamp: FileStamp
    """Stamp of the file when the upload began."""
    upload: str
    """Last segment of the upload's URL."""


class Journal(ClosedAtEnd):
    """The journal of one push, which gets one line for each upload that begins.

    If another push has locked the journal, or a write fails, the journal is not `lasting`. Then a later push cannot
    resume, and sends everything again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._fd = -1
        if path is not None:
            with suppress(OSError):
                self._fd = _locked(path)
        self.entries: Mapping[str, JournalEntry] = _entries(self._fd) if self.lasting else {}
        """The entries that the journal had when it was opened, by path in the store."""

    @classmethod
    def of(cls, url: str, pushed: Path, type: str | None) -> Journal:
        """Return the journal for pushes of the file or folder `pushed` to the service at `url`."""
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
        """True if another process can find the entries."""
        return self._fd >= 0

    def note(self, item: UploadFile, upload: str) -> None:
        """Record that the upload of a file has begun."""
        if item.stamp is None or not self.lasting:
            return
        line = json.dumps({"file": item.path, "upload": upload, **asdict(item.stamp)})
        try:
            os.write(self._fd, f"\n{line}\n".encode())  # the first line feed ends a line that a crash left incomplete
        except OSError:
            self.remove()

    def remove(self) -> None:
        """Delete the journal, because it is no longer needed."""
        if self._path is not None and self.lasting:
            with suppress(OSError):
                self._path.unlink()
        self.close()

    def close(self) -> None:
        """Close the journal, and keep the file for another process."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def default_folder() -> Path:
    """Return the folder of journals, `$XDG_STATE_HOME/protoslice/uploads`.

    If the variable is not set, the folder is `~/.local/state/protoslice/uploads`.
    """
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return base / "protoslice" / "uploads"


def _locked(path: Path) -> int:
    """Open and lock the file at `path`, and return its descriptor; raise `OSError` if another process has the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        lock(fd, path)
        os.utime(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _entries(fd: int) -> dict[str, JournalEntry]:
    """Return the entries of a journal by path in the store.

    Lines that cannot be parsed are skipped; a crash may have left an incomplete line.
    """
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
    """Remove journals that have not been used for `_KEPT_SECONDS`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_SECONDS:
                    os.unlink(entry.path)

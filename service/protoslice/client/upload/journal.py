"""Journal of a push on the local disk, so that another process can go on with it."""

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
from types import TracebackType
from typing import Any, Final, Self

from protoslice.client.locks import lock
from protoslice.client.upload.bodies import Item, Stamp

__all__ = ["Journal", "JournalEntry", "default_folder"]

_KEPT_SECONDS: Final = 30 * 86400
"""A service keeps an upload that does not get on for a day, unless its operator says otherwise."""
_LONGEST: Final = 16 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An upload that was begun for a file as it was then."""

    stamp: Stamp
    upload: str
    """The last part of the upload's URL."""


class Journal:
    """The uploads of one push, each in a line as soon as it is begun. What cannot be kept is not: that costs sending.

    A push that finds its journal in use by another one, or the disk full, goes on with one that is not `lasting`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._fd = -1
        if path is not None:
            with suppress(OSError):
                self._fd = _locked(path)
        self.entries: Mapping[str, JournalEntry] = _entries(self._fd) if self.lasting else {}
        """By the file's name, what was there when the journal was opened."""

    @classmethod
    def of(cls, url: str, pushed: Path, type: str | None) -> Journal:
        """The journal for pushing a file or a folder to the service at `url`."""
        key = json.dumps([url, os.path.realpath(pushed), type])
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        try:
            folder = default_folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(folder)
        except (OSError, RuntimeError):  # without a home nothing is kept
            return cls()
        return cls(folder / f"{name}.jsonl")

    @property
    def lasting(self) -> bool:
        """True if another process will find these notes."""
        return self._fd >= 0

    def note(self, item: Item, upload: str) -> None:
        """An upload has been begun for a file."""
        if item.stamp is None or not self.lasting:
            return
        line = json.dumps({"file": item.path, "upload": upload, **asdict(item.stamp)})
        try:
            os.write(self._fd, f"\n{line}\n".encode())  # what a machine that went down left of another one ends here
        except OSError:
            self.remove()

    def remove(self) -> None:
        """Nothing of it is needed any more."""
        if self._path is not None and self.lasting:
            with suppress(OSError):
                self._path.unlink()
        self.close()

    def close(self) -> None:
        """Leave it to the next process."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def default_folder() -> Path:
    """Where journals lie: what should outlast a restart and is nothing to keep."""
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return base / "protoslice" / "uploads"


def _locked(path: Path) -> int:
    """The file, which is ours alone until it is closed; raises where it is another's."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        lock(fd, path)
        os.utime(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _entries(fd: int) -> dict[str, JournalEntry]:
    """What the lines say; those that say nothing, because a machine went down or for whatever reason, do not count."""
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
    return path, JournalEntry(Stamp(said["size"], said["mtime_ns"], said["inode"]), upload)


def _sweep(folder: Path) -> None:
    """Remove journals that no service can know anything of any more."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_SECONDS:
                    os.unlink(entry.path)

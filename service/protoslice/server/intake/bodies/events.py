"""What the readers of bodies have in common: bytes go in, the beginnings, pieces and ends of files come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded

__all__ = ["Event", "FileEnd", "FileStart", "Reader", "Tally"]


@dataclass(frozen=True, slots=True)
class FileStart:
    """The next bytes are of the file at `path`."""

    path: str


class FileEnd(Enum):
    """The file that was started has all its bytes."""

    FILE_END = 0


Event = FileStart | bytes | FileEnd


class Reader(Protocol):
    """A reader of one kind of body that does no I/O of its own. Errors name the byte of the body they are about."""

    def feed(self, piece: bytes) -> Iterable[Event]:
        """What `piece`, the next bytes of the body, brings; to be taken up before the next piece is fed."""

    def finish(self) -> Iterable[Event]:
        """What the end of the body brings. Raises when the body may not end here."""


class Tally:
    """Counts the files of a body: there must be one, and there must not be too many."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._files = 0

    def add(self, offset: int) -> None:
        """One more file, found at `offset`."""
        self._files += 1
        if self._files > MAX_FILES:
            raise LimitExceeded(f"the {self._kind} holds more than {MAX_FILES} files", offset)

    def close(self, offset: int) -> None:
        """No more files will come."""
        if not self._files:
            raise InvalidInput(f"the {self._kind} holds no file", offset)

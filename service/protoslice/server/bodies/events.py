"""Interface of body readers: bytes go in; beginnings, pieces and ends of files come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded


@dataclass(frozen=True, slots=True)
class FileStart:
    """The next bytes are of the file at `path`."""

    path: str


class FileEnd(Enum):
    """The file that was started has all its bytes."""

    FILE_END = 0


Event = FileStart | bytes | FileEnd


class Reader(Protocol):
    """Reader of one kind of body, without I/O. Its errors name the byte of the body at fault."""

    def feed(self, piece: bytes) -> Iterable[Event]:
        """Events of `piece`, the next bytes of the body; take all of them before feeding the next piece."""

    def finish(self) -> Iterable[Event]:
        """Events of the body's end; raises when the body may not end here."""


class Tally:
    """Counts the files of a body: there must be one, and there must not be too many."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._files = 0

    def add(self, offset: int) -> None:
        """One more file, found at `offset`."""
        self._files += 1
        if self._files > MAX_FILES:
            raise LimitExceeded(f"The {self._kind} contains more than {MAX_FILES} files", offset)

    def close(self, offset: int) -> None:
        """No more files will come."""
        if not self._files:
            raise InvalidInput(f"The {self._kind} contains no files", offset)

"""Object of a storage as a range source, pinned to one version of the object."""

from __future__ import annotations

from typing import Final

from protoslice.closing import ClosedAtEnd
from protoslice.errors import CorruptModel, InvalidInput
from protoslice.sources.remote.reader import BLOCK, BlockingReader
from protoslice.storage.interface import ObjectStat

_NEAR: Final = 4
"""Blocks between two requests in sequence: a gap of 256 KiB costs less than a request."""
_LEAST: Final = 1
"""Blocks read ahead at least, as the engine looks at 64 KiB from the begin of a message."""
_AHEAD: Final = 256
"""Blocks read ahead at most, 16 MiB."""


class ObjectSource(ClosedAtEnd):
    """A `RangeSource` over one object; threads may share it.

    A read asks for the blocks of 64 KiB that are not held and one more, in one request up to 4 MiB. Reads in sequence
    ask for as many blocks ahead as they have read so far, 16 MiB at most.
    """

    def __init__(self, reader: BlockingReader, found: ObjectStat, name: str, *, owner: bool = False) -> None:
        """`name` is for messages; an `owner` closes the reader."""
        self.name = name
        self.size = found.size
        self._reader = reader
        self._found = found
        self._owner = owner
        self._end = 0  # of the last request, in blocks
        self._run = 0  # blocks of the requests that led there in sequence

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly `length` bytes at `offset`.

        `CorruptModel` for a range beyond the end, `Conflict` when the object was replaced since it was opened.
        """
        if offset < 0 or length < 0:
            raise InvalidInput(f"Invalid range of {self.name}: offset {offset}, length {length}")
        if offset + length > self.size:
            raise CorruptModel(f"{self.name} has only {self.size} bytes, but {offset + length} are needed", offset)
        if not length:
            return b""
        first, stop = offset // BLOCK, -(-(offset + length) // BLOCK)
        have = self._reader.held(self._found, first, stop)
        missing = [number for number in range(first, stop) if number not in have]
        if missing:
            have |= self._reader.fetch(self._found, missing[0], self._until(missing[0], missing[-1] + 1, stop))
        data = b"".join([have[number] for number in range(first, stop)])
        return data[offset - first * BLOCK :][:length]

    def close(self) -> None:
        """Close the storage, unless others read from it; may be called twice."""
        if self._owner:
            self._reader.close()

    def _until(self, first: int, end: int, stop: int) -> int:
        """Last block of a request that begins at `first` and has to reach `end`, for a read up to `stop`."""
        # Threads that read at once may spoil each other's guess, at the price of a request or some bytes.
        if not self._end <= first <= self._end + _NEAR:
            self._run = 0
        ahead = min(max(_LEAST, self._run), _AHEAD) if end == stop else 0
        self._end = min(end + ahead, -(-self.size // BLOCK))
        self._run += self._end - first
        return self._end

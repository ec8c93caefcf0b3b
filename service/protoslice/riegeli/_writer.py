"""Writer of riegeli files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO

from google.protobuf.message import Message

from protoslice import _core
from protoslice.closing import ClosedAtEnd
from protoslice.errors import InvalidInput, NotFound, StorageError
from protoslice.riegeli._positions import RecordPosition


class RecordWriter(ClosedAtEnd):
    """Writes records to a riegeli file: to a path, replaced unless `append`, or to a binary file object.

    `options` are those of the reference implementation, such as `"zstd:9,chunk_size:4M"` or `"uncompressed"`. A file
    object is flushed but not closed. A continued file gets no second metadata by itself.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str] | BinaryIO,
        *,
        options: str = "",
        metadata: Message | None = None,
        serialized_metadata: bytes | None = None,
        append: bool = False,
    ) -> None:
        self._core: _core.RiegeliWriter | None = None
        self._file: BinaryIO | None = None
        self._name = "the file object"
        described = serialized_metadata if metadata is None else metadata.SerializeToString()
        if isinstance(dest, str | os.PathLike):
            self._name = os.fspath(dest)
            try:
                self._core = _core.RiegeliWriter.to_path(self._name, options, described, append)
            except OSError as error:
                raise _storage_error(self._name, error) from error
            return
        self._file = dest
        self._core = _core.RiegeliWriter.to_object(dest, options, described, _position(dest))

    def close(self) -> None:
        """Write buffered records and end the file; harmless when repeated."""
        if self._core is None:
            return
        try:
            self.flush()
        finally:
            self._core = None

    def flush(self) -> None:
        """Write buffered records, so that readers find them; each flush ends a chunk."""
        core = self._open()
        try:
            core.flush()
        except OSError as error:
            self._tell(error)
            raise
        if self._file is not None and hasattr(self._file, "flush"):
            self._file.flush()

    def write_record(self, record: bytes | bytearray | memoryview) -> None:
        """Write one record."""
        core = self._core or self._open()
        try:
            core.write(record if isinstance(record, bytes) else bytes(record))
        except OSError as error:
            self._tell(error)
            raise

    def write_message(self, message: Message) -> None:
        """Write one message as a record."""
        self.write_record(message.SerializeToString())

    def write_records(self, records: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write each of `records`."""
        for record in records:
            self.write_record(record)

    def write_messages(self, messages: Iterable[Message]) -> None:
        """Write each message as a record."""
        for message in messages:
            self.write_message(message)

    @property
    def pos(self) -> RecordPosition:
        """Position of the next record, unless that record opens a chunk of its own."""
        return RecordPosition(*self._open().position)

    @property
    def last_pos(self) -> RecordPosition:
        """Position of the record written last; `NotFound` before the first."""
        position = self._open().last_position
        if position is None:
            raise NotFound("No position yet: write a record first")
        return RecordPosition(*position)

    def _open(self) -> _core.RiegeliWriter:
        if self._core is None:
            raise InvalidInput("The writer is closed; create a new one with append=True to continue")
        return self._core

    def _tell(self, error: OSError) -> None:
        """Raise `StorageError` with the name of our own file; errors of a file object stay as they are."""
        if self._file is None:
            raise _storage_error(self._name, error) from error


def _storage_error(name: str, error: OSError) -> StorageError:
    return StorageError(f"Cannot write {name}: {error.strerror or error}")


def _position(file: BinaryIO) -> int:
    """Offset at which a file is continued; 0 for a pipe."""
    seekable = getattr(file, "seekable", None)
    return file.tell() if seekable is not None and seekable() else 0

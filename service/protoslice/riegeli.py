"""A reader and a writer of Riegeli/records files. Their interface resembles that of Google's Python binding."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

from google.protobuf.message import DecodeError, Message

from protoslice import _core, schema
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound, StorageError
from protoslice.sources.opening import SourceLike, as_source, opened_by
from protoslice.sources.source import ClosedAtEnd, SourceOwner

__all__ = ["RecordPosition", "RecordReader", "RecordWriter", "RecordsMetadata", "SkippedRegion"]


@dataclass(frozen=True, slots=True, order=True)
class RecordPosition:
    """The position of a record: the byte offset of its chunk, and its index in the chunk."""

    chunk_begin: int
    record_index: int = 0

    def __post_init__(self) -> None:
        if self.chunk_begin < 0 or self.record_index < 0 or self.numeric >= 1 << 64:
            raise InvalidInput(f"{self.chunk_begin}/{self.record_index} is not a record position")

    @property
    def numeric(self) -> int:
        """The position as one number. These numbers have the same order as the records of a file."""
        return self.chunk_begin + self.record_index

    def to_bytes(self) -> bytes:
        """Return the serialized position, which has 16 bytes and sorts like positions."""
        return struct.pack(">QQ", self.chunk_begin, self.record_index)

    @classmethod
    def from_bytes(cls, serialized: bytes) -> Self:
        """Parse the 16 bytes that `to_bytes` returned; raise `InvalidInput` for any other length."""
        if len(serialized) != 16:
            raise InvalidInput(f"A serialized position has 16 bytes, not {len(serialized)}")
        return cls(*struct.unpack(">QQ", serialized))

    def __str__(self) -> str:
        return f"{self.chunk_begin}/{self.record_index}"


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """A region of a file that could not be read, from the offset `begin` up to `end`, and the reason."""

    begin: int
    end: int
    message: str

    @property
    def length(self) -> int:
        """The number of skipped bytes."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"[{self.begin}..{self.end}): {self.message}"


RecordsMetadata: type[Message] = schema.bundled().message_class("riegeli.RecordsMetadata")
"""The message type that can describe a riegeli file before its first record."""
_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")

Recovery = Callable[[SkippedRegion], object]
"""A function that receives each skipped region. If it returns False or raises StopIteration, reading ends."""


class RecordReader(SourceOwner):
    """A reader of the records in a riegeli file, given as a path, a URI or a source. It holds one chunk in memory.

    Without `recovery`, damage raises `CorruptModel`. With `recovery`, the reader skips the damaged region and passes it
    to `recovery`. Only `close` reports a file that ends within a chunk, because the file may still be growing.
    """

    def __init__(
        self,
        src: SourceLike,
        *,
        recovery: Recovery | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._source = as_source(src, storage_options)
        super().__init__([self._source])
        self.own(*opened_by(self._source, src))
        self._core: _core.RiegeliReader | None = _core.RiegeliReader(self._source)
        self._recovery = recovery
        self._ends = False
        """True when recovery ended the reading during a seek, so that the next read returns no record."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._release()

    def close(self) -> None:
        """Close the reader; raise `CorruptModel` if reading stopped because the file ends within a chunk."""
        if self._core is None:
            return
        try:
            self._recovering(self._core.close)
        finally:
            self._release()

    def read_record(self) -> bytes | None:
        """Return the next record; None at the end, and if `recovery` ends the reading."""
        core = self._open()
        if self._ends:
            self._ends = False
            return None
        while True:
            try:
                return core.read()
            except (CorruptModel, LimitExceeded) as error:
                if not self._recover(core, error):
                    return None

    def read_message(self, message_type: type[_M]) -> _M | None:
        """Return the next record as a message; None at the end, and if `recovery` ends the reading."""
        while (record := self.read_record()) is not None:
            try:
                return message_type.FromString(record)
            except DecodeError as error:
                if not self._unparsable(message_type, error):
                    return None
        return None

    def read_records(self) -> Iterator[bytes]:
        """Yield the records from the current position to the end."""
        while (record := self.read_record()) is not None:
            yield record

    def read_messages(self, message_type: type[_M]) -> Iterator[_M]:
        """Yield the records from the current position to the end as messages."""
        while (message := self.read_message(message_type)) is not None:
            yield message

    @property
    def pos(self) -> RecordPosition:
        """The position of the next record. After the last record, it is the position that a next record would have."""
        return RecordPosition(*self._open().position)

    @property
    def last_pos(self) -> RecordPosition:
        """The position of the record read last. Access raises `NotFound` before the first read."""
        position = self._open().last_position
        if position is None:
            raise NotFound("No position yet: read a record first")
        return RecordPosition(*position)

    def size(self) -> int:
        """Return the size of the file in bytes."""
        self._open()
        return self._source.size

    def seek(self, pos: RecordPosition) -> None:
        """Seek to the record at `pos`, or after the last record of the chunk if the chunk has no such record."""
        core = self._open()
        self._recovering(lambda: core.seek(pos.chunk_begin, pos.record_index))

    def seek_numeric(self, pos: int) -> None:
        """Seek to the record at the numeric position `pos`, or to the first record after that position."""
        if pos < 0:
            raise InvalidInput(f"{pos} is not a position in a file: use 0 or more")
        core = self._open()
        self._recovering(lambda: core.seek_numeric(pos))

    def seek_back(self) -> bool:
        """Seek back by one record; return False if there is no earlier record."""
        return self._open().seek_back()

    def check_file_format(self) -> bool:
        """Return True when the file begins with a riegeli signature. The position does not change."""
        return self._open().check_file_format()

    def read_serialized_metadata(self) -> bytes:
        """Return the file's serialized `RecordsMetadata`; empty if the file has none."""
        return self._open().metadata() or b""

    def read_metadata(self) -> Message:
        """Return the file's `RecordsMetadata`, an empty message if the file has none.

        Raise `CorruptModel` if the metadata does not parse.
        """
        try:
            return RecordsMetadata.FromString(self.read_serialized_metadata())
        except DecodeError as error:
            raise CorruptModel(f"The metadata of the file cannot be parsed: {error}", 64) from error

    def search_for_record(self, test: Callable[[bytes], int | None]) -> None:
        """Seek to the first record for which `test` does not return a negative number.

        `test` returns a negative number for records before the wanted record, 0 for that record, and a positive number
        after it. The records must be sorted accordingly. If `test` returns None, the search ends at once.
        """
        low, high = 0, self.size()
        while low < high:
            middle = (low + high) // 2
            self.seek_numeric(middle)
            if (record := self.read_record()) is None:
                high = middle
                continue
            if (order := test(record)) is None:
                return
            low, high = (self.last_pos.numeric + 1, high) if order < 0 else (low, middle)
        self.seek_numeric(low)

    def search_for_message(self, message_type: type[_M], test: Callable[[_M], int | None]) -> None:
        """Seek like `search_for_record`, but pass records to `test` as messages."""
        self.search_for_record(lambda record: test(message_type.FromString(record)))

    def _open(self) -> _core.RiegeliReader:
        if self._core is None:
            raise InvalidInput("The reader is closed; create a new one")
        return self._core

    def _release(self) -> None:
        self._core = None
        super().close()

    def _recovering(self, work: Callable[[], _T]) -> _T | None:
        """Return the result of `work`; None if `work` found damage that recovery skipped."""
        core, self._ends = self._open(), False
        try:
            return work()
        except (CorruptModel, LimitExceeded) as error:
            self._ends = not self._recover(core, error)
            return None

    def _recover(self, core: _core.RiegeliReader, error: Exception) -> bool:
        """Skip and report the damage in `error`; return False if reading must end.

        Raise `error` if there is no recovery or the damage cannot be skipped.
        """
        skipped = None if self._recovery is None else core.recover()
        if skipped is None:
            raise error
        return self._tell(SkippedRegion(*skipped))

    def _unparsable(self, message_type: type[Message], error: DecodeError) -> bool:
        position = self.last_pos
        message = f"the record at {position} is not a {message_type.DESCRIPTOR.full_name}: {error}"
        if self._recovery is None:
            raise CorruptModel(message) from error
        return self._tell(SkippedRegion(position.numeric, position.numeric + 1, message))

    def _tell(self, region: SkippedRegion) -> bool:
        assert self._recovery is not None
        try:
            return self._recovery(region) is not False
        except StopIteration:
            return False


class RecordWriter(ClosedAtEnd):
    """A writer of records to a riegeli file, given as a path or a binary file object.

    An existing file at a path is replaced, or continued if `append` is set. A continued file gets no second metadata.
    A file object is flushed but not closed. `options` are the options of the reference implementation, such as
    `"zstd:9,chunk_size:4M"` or `"uncompressed"`.
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
        """Write buffered records and end the file. Further calls have no effect."""
        if self._core is None:
            return
        try:
            self.flush()
        finally:
            self._core = None

    def flush(self) -> None:
        """Write buffered records, so that readers find them. Each flush ends a chunk."""
        core = self._open()
        try:
            core.flush()
        except OSError as error:
            self._tell(error)
            raise
        if self._file is not None and hasattr(self._file, "flush"):
            self._file.flush()

    def write_record(self, record: bytes | bytearray | memoryview) -> None:
        """Write `record`."""
        core = self._core or self._open()
        try:
            core.write(record if isinstance(record, bytes) else bytes(record))
        except OSError as error:
            self._tell(error)
            raise

    def write_message(self, message: Message) -> None:
        """Write `message` as a record."""
        self.write_record(message.SerializeToString())

    def write_records(self, records: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write all `records` in order."""
        for record in records:
            self.write_record(record)

    def write_messages(self, messages: Iterable[Message]) -> None:
        """Write all `messages` as records, in order."""
        for message in messages:
            self.write_message(message)

    @property
    def pos(self) -> RecordPosition:
        """The position of the next record. The actual position differs if that record begins a new chunk."""
        return RecordPosition(*self._open().position)

    @property
    def last_pos(self) -> RecordPosition:
        """The position of the record written last. Access raises `NotFound` before the first write."""
        position = self._open().last_position
        if position is None:
            raise NotFound("No position yet: write a record first")
        return RecordPosition(*position)

    def _open(self) -> _core.RiegeliWriter:
        if self._core is None:
            raise InvalidInput("The writer is closed; create a new one with append=True to continue")
        return self._core

    def _tell(self, error: OSError) -> None:
        """Raise `StorageError` with the file's name if the file was opened by its path. Return for a file object.

        The caller then raises the file object's error unchanged.
        """
        if self._file is None:
            raise _storage_error(self._name, error) from error


def _storage_error(name: str, error: OSError) -> StorageError:
    return StorageError(f"Cannot write {name}: {error.strerror or error}")


def _position(file: BinaryIO) -> int:
    """Return the current offset of `file`, at which writing starts; 0 for a pipe."""
    seekable = getattr(file, "seekable", None)
    return file.tell() if seekable is not None and seekable() else 0

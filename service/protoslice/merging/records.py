"""Chunks of a `.cpb` file, read one at a time by the positions in its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

from protoslice import _core
from protoslice.errors import InconsistentChunks, NotFound, Unsupported
from protoslice.riegeli import RecordReader
from protoslice.sources.opening import SourceLike
from protoslice.splitting.metadata import chunk_metadata


class ChunkRecords(Sequence[bytes]):
    """Chunks that `metadata` lists; each access reads the chunk from the file.

    `InconsistentChunks` when no record begins at the chunk's position, or one of another size.
    """

    def __init__(self, reader: RecordReader, metadata: Any) -> None:
        self._reader = reader
        self._chunks = metadata.chunks

    def __len__(self) -> int:
        return len(self._chunks)

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        info = self._chunks[number]
        record = self._at(number, info.offset)
        if info.size and info.size != len(record):
            raise InconsistentChunks(f"Chunk {number} should have {info.size} bytes, but its record has {len(record)}")
        return record

    def _at(self, number: int, offset: int) -> bytes:
        try:
            self._reader.seek_numeric(offset)
            record = self._reader.read_record()
        except NotFound:
            record = None
        if record is None or self._reader.last_pos.numeric != offset:
            raise InconsistentChunks(f"Chunk {number} should be the record at {offset}, but no record starts there")
        return record


@contextmanager
def open_chunks(src: SourceLike, metadata: Any = None) -> Iterator[tuple[ChunkRecords, Any]]:
    """Chunks of the file `src`, and `metadata`, by default the file's own `ChunkMetadata`.

    `Unsupported` for a riegeli file without such metadata.
    """
    with RecordReader(src) as reader:
        found = _metadata(reader, str(getattr(src, "name", src))) if metadata is None else metadata
        yield ChunkRecords(reader, found), found


def _metadata(reader: RecordReader, path: str) -> Any:
    metadata = chunk_metadata()
    reader.seek_numeric(reader.size())
    record = reader.read_record() if reader.seek_back() else None
    if record is None:
        raise Unsupported(f"{path} is a riegeli file without records, not a chunked proto")
    try:
        _core.Chunked.check_metadata(record)
    except Unsupported as error:
        raise Unsupported(f"{path} is a riegeli file, but not a chunked proto: {error.message}") from error
    metadata.MergeFromString(record)
    return metadata

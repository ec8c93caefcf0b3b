"""The ordered chunks of a split message, and functions that write them to files.

A `.pb` file holds an unsplit message. A `.cpb` file holds chunks, and its last record is their metadata.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import EncodeError, Message

from protoslice.defaults import LARGEST_MESSAGE
from protoslice.errors import Conflict, InvalidInput, LimitExceeded, StorageError
from protoslice.local_files import replacing
from protoslice.riegeli import RecordWriter
from protoslice.splitting.fields import message_size
from protoslice.splitting.paths import chunk_metadata, chunked_message
from protoslice.splitting.remainder import Chunk, LazyChunk


@dataclass(slots=True)
class ChunkNode:
    """A chunk and its place below the parent node. The root node has no tags, and may have no chunk."""

    tags: Sequence[Any] = ()
    piece: LazyChunk | None = None
    below: list[ChunkNode] = field(default_factory=list)


class ChunkTree:
    """A tree of numbered chunks. Nodes identify the chunks, so that one message may be added twice."""

    def __init__(self, *, with_base: bool) -> None:
        self.root = ChunkNode()
        self._order: list[ChunkNode] = [self.root] if with_base else []

    @property
    def with_base(self) -> bool:
        """True when the message itself is one of the chunks."""
        return any(node is self.root for node in self._order)

    def add(
        self, parent: ChunkNode, tags: Sequence[Any], piece: LazyChunk | None = None, *, index: int | None = None
    ) -> ChunkNode:
        """Add a chunk at the end, or before the chunk number `index` if it is not None.

        Inserting a chunk renumbers all later chunks. Raise `InvalidInput` if `index` is negative or above the number of
        chunks.
        """
        node = ChunkNode(tags, piece)
        if index is None:
            self._order.append(node)
        elif 0 <= index <= len(self._order):
            self._order.insert(index, node)
        else:
            raise InvalidInput(f"Cannot insert a chunk at {index}: there are {len(self._order)} chunks")
        parent.below.append(node)
        return node

    def pieces(self) -> list[LazyChunk]:
        """Return the chunks in order."""
        return [node.piece for node in self._order if node.piece is not None]

    def message(self) -> Any:
        """Return the `ChunkedMessage` that describes the tree."""
        numbers = {id(node): number for number, node in enumerate(self._order)}
        message = chunked_message()
        _fill(message, self.root, numbers)
        return message


def _fill(message: Any, node: ChunkNode, numbers: dict[int, int]) -> None:
    if id(node) in numbers:
        message.chunk_index = numbers[id(node)]
    for child in node.below:
        added = message.chunked_fields.add()
        added.field_tag.extend(child.tags)
        _fill(added.message, child, numbers)


_MESSAGE, _BYTES = 1, 2


def write_whole(prefix: str, piece: LazyChunk) -> str:
    """Write the unsplit message to `<prefix>.pb` and return the path of the file.

    Raise `Conflict` if `<prefix>.cpb` exists, because readers would prefer it.
    """
    path = f"{prefix}.pb"
    if os.path.exists(f"{prefix}.cpb"):
        raise Conflict(f"{prefix}.cpb exists and would be read instead of {path}; remove it or use another prefix")
    data = _serialized(piece, "the message that remains after splitting")
    with _replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(data)
    return path


def write_chunks(prefix: str, pieces: Sequence[LazyChunk], message: Any, version: Any, options: str) -> str:
    """Write the chunks to `<prefix>.cpb` and return the path of the file. One chunk at a time is in memory."""
    path = f"{prefix}.cpb"
    metadata = chunk_metadata()
    metadata.version.MergeFromString(version.SerializeToString())
    metadata.message.CopyFrom(message)
    with _replacing(path) as temporary, RecordWriter(temporary, options=options) as writer:
        for number, piece in enumerate(pieces):
            chunk = piece.build()
            data = _serialized(LazyChunk(lambda chunk=chunk: chunk, piece.size), f"chunk {number}")  # type: ignore[misc]
            writer.write_record(data)
            kind = _MESSAGE if isinstance(chunk, Message) else _BYTES
            metadata.chunks.add(type=kind, size=len(data), offset=writer.last_pos.numeric)
        writer.write_record(metadata.SerializeToString(deterministic=True))
    return path


def _serialized(piece: LazyChunk, what: str) -> bytes:
    chunk: Chunk = piece.build()
    if not isinstance(chunk, Message):
        return bytes(chunk)
    size = message_size(chunk) if piece.size is None else piece.size
    if size > LARGEST_MESSAGE:
        raise LimitExceeded(f"{what} has {size} bytes; protobuf allows up to {LARGEST_MESSAGE}, so split it further")
    try:
        return chunk.SerializePartialToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise InvalidInput(f"Cannot serialize {what}: {error}") from error


@contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield the name of a temporary file, which then replaces `path`; raise `StorageError` for an `OSError`."""
    try:
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror or error}") from error

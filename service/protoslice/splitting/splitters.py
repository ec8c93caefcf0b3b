"""Splitters: the interface, and the base class of those that use others."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.chunk_file import ChunkNode, ChunkTree, write_chunks, write_whole
from protoslice.splitting.fields import descriptor_of
from protoslice.splitting.paths import (
    Fields,
    Key,
    Path,
    check_text,
    listed,
    path_of,
    show,
    tags_of,
    value_at,
    version_def,
)
from protoslice.splitting.planner import SplitPolicy
from protoslice.splitting.remainder import Chunk, LazyChunk, Remainder, existing_chunk


class Splitter(ABC):
    """Splits one message into chunks."""

    @property
    @abstractmethod
    def version_def(self) -> Any:
        """The `VersionDef` that goes into the metadata."""

    @abstractmethod
    def split(self) -> tuple[list[Chunk], Any]:
        """Chunks, and the `ChunkedMessage` that places the chunks in the message."""

    @abstractmethod
    def write(self, file_prefix: str | os.PathLike[str], writer_options: str | None = None) -> str:
        """Write `<prefix>.cpb`, or `<prefix>.pb` when nothing was split out, and return the path."""


class ComposableSplitter(Splitter):
    """Splitter that can use others: override `build_chunks`, and call `add_chunk` there.

    `self.source` is the message, which is never changed. `self._proto` is a copy that `build_chunks` may edit, made on
    first access. Chunks may share content with the message, so neither may be edited while the other is in use.
    """

    default_policy: ClassVar[SplitPolicy] = SplitPolicy.greedy()
    """Sizes to split by if neither the splitter nor a parent was given any."""

    def __init__(
        self,
        proto: Message,
        *,
        proto_as_initial_chunk: bool = True,
        parent_splitter: ComposableSplitter | None = None,
        fields_in_parent: Fields | None = None,
        policy: SplitPolicy | None = None,
    ) -> None:
        """Takes the message; a child also takes its parent and the place of its message in the parent's.

        `proto_as_initial_chunk` is False when nothing is left of the message itself. `policy` defaults to the parent's.
        """
        self._given = proto
        self._parent = parent_splitter
        self._place = listed(() if fields_in_parent is None else fields_in_parent)
        self._own: Remainder | None = None if parent_splitter else Remainder(proto)
        self._tree = ChunkTree(with_base=proto_as_initial_chunk)
        self._policy = policy
        self._begun = self._built = False

    def build_chunks(self) -> Any:
        """Call `add_chunk` for each chunk. To be overridden; `split` and `write` call `build_chunks` once."""

    @property
    def version_def(self) -> Any:
        """The `VersionDef` that goes into the metadata."""
        return version_def()

    @property
    def source(self) -> Message:
        """The message as given, not to be changed."""
        return self._given

    @property
    def policy(self) -> SplitPolicy:
        """Sizes to split by: the splitter's own, else the parent's, else `default_policy`."""
        if self._policy is not None:
            return self._policy
        return self.default_policy if self._parent is None else self._parent.policy

    @property
    def _proto(self) -> Message:
        """Editable copy of the remaining message; a child's is a part of its root's copy."""
        if self._own is None:
            located = self._located()
            inside = None if located is None else value_at(located[0].editable, located[1])
            if isinstance(inside, Message):
                return inside
            self._own = Remainder(self._given)
        return self._own.editable

    def _located(self) -> tuple[Remainder, Path] | None:
        """`(root remainder, path)` of the message; None when the message is not part of the root's."""
        root, place = self._from_root([])
        assert root._own is not None
        path = path_of(descriptor_of(root._given), place)
        inside = (value_at(message, path) for message in (root._given, root._own.readable))
        return (root._own, path) if any(each is self._given for each in inside) else None

    @property
    def _chunks(self) -> list[Chunk]:
        """Chunks so far, as TensorFlow's guide returns them; of a child, those of its root."""
        root, _ = self._from_root([])
        root._tree.root.piece = root._base()
        return [piece.build() for piece in root._tree.pieces()]

    @property
    def _chunked_message(self) -> Any:
        """`ChunkedMessage` of the chunks so far; of a child, that of its root."""
        return self._from_root([])[0]._tree.message()

    def split(self) -> tuple[list[Chunk], Any]:
        """Chunks, and the `ChunkedMessage` that places the chunks in the message.

        `InvalidInput` for a splitter with a parent, to whose chunks it adds.
        """
        pieces, message = self._pieces()
        return [piece.build() for piece in pieces], message

    def write(self, file_prefix: str | os.PathLike[str], writer_options: str | None = None) -> str:
        """Write `<prefix>.cpb`, or `<prefix>.pb` when nothing was split out, and return the path.

        `writer_options` are riegeli's, such as `"uncompressed"`. The file appears once complete. `InvalidInput` for a
        splitter with a parent.
        """
        prefix = os.fspath(file_prefix)
        pieces, message = self._pieces()
        if not message.chunked_fields:
            return write_whole(prefix, self._base())
        return write_chunks(prefix, pieces, message, self.version_def, writer_options or "")

    def _pieces(self) -> tuple[list[LazyChunk], Any]:
        if self._parent is not None:
            raise InvalidInput("A splitter with a parent adds its chunks to the parent: split the parent instead")
        if not self._built:
            if self._begun:
                raise InvalidInput("Building the chunks failed before: split the message with a new splitter")
            self._begun = True
            self.build_chunks()
            self._built = True
        self._tree.root.piece = self._base()
        return self._tree.pieces(), self._tree.message()

    def _base(self) -> LazyChunk:
        assert self._own is not None
        return self._own.base()

    def add_chunk(self, chunk: Chunk, field_tags: Fields, index: int | None = None) -> None:
        """Add a chunk at the place `field_tags`: names or numbers of fields, indices and map keys.

        Empty tags make the chunk a part of the message itself. `index` puts the chunk before chunk number `index`.
        The content stays in the message too, unless removed from `self._proto`. `InvalidInput` for binary numbers: the
        chunk of a number is its text.
        """
        if not isinstance(chunk, Message | bytes | bytearray | memoryview):
            raise InvalidInput(f"Invalid chunk {type(chunk).__name__}: use a message or bytes")
        if not isinstance(chunk, Message):
            check_text(path_of(descriptor_of(self._given), listed(field_tags)), bytes(chunk))
        self._add(existing_chunk(chunk if isinstance(chunk, Message) else bytes(chunk)), listed(field_tags), index)

    def _add(self, piece: LazyChunk | None, tags: list[Key], index: int | None = None) -> ChunkNode:
        root, place = self._from_root(tags)
        path = path_of(descriptor_of(root._given), place)
        return root._tree.add(root._tree.root, tags_of(path), piece, index=index)

    def _part_of_root(self) -> tuple[Remainder, Path]:
        """`(root remainder, path)` of the message; `InvalidInput` when the message is not part of the root's."""
        if (located := self._located()) is None:
            place = show(path_of(descriptor_of(self._from_root([])[0]._given), self._from_root([])[1]))
            raise InvalidInput(
                "The child splitter's message is not the parent's message at this path: pass a part of "
                "self.source or self._proto",
                path=place or None,
            )
        return located

    def _from_root(self, tags: list[Key]) -> tuple[ComposableSplitter, list[Key]]:
        """The root splitter, and the place of `tags` in the root's message."""
        splitter = self
        while splitter._parent is not None:
            tags = [*splitter._place, *tags]
            splitter = splitter._parent
        return splitter, tags

"""Splitters: their interface, base classes for custom splitters, and splitters that can be used as they are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.chunk_file import ChunkNode, ChunkTree, write_chunks, write_whole
from protoslice.splitting.fields import Shape, delimited, descriptor_of, message_size, value_size
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
from protoslice.splitting.planner import Entry, Plan, SplitPolicy, cut_into_runs, plan
from protoslice.splitting.remainder import Chunk, LazyChunk, Remainder, existing_chunk


class Splitter(ABC):
    """The interface of splitters, each of which splits one message into chunks."""

    @property
    @abstractmethod
    def version_def(self) -> Any:
        """The `VersionDef` that goes into the metadata."""

    @abstractmethod
    def split(self) -> tuple[list[Chunk], Any]:
        """Return the chunks, and the `ChunkedMessage` that places the chunks in the message."""

    @abstractmethod
    def write(self, file_prefix: str | os.PathLike[str], writer_options: str | None = None) -> str:
        """Write `<prefix>.cpb`, or `<prefix>.pb` if no part of the message became a chunk, and return the path."""


class ComposableSplitter(Splitter):
    """A base class of splitters that can use other splitters. Subclasses override `build_chunks` to call `add_chunk`.

    `self.source` is the message, which never changes. `self._proto` is a copy that `build_chunks` may edit; the first
    access makes it. Chunks may share content with the message, so neither may be edited while the other is in use.
    """

    default_policy: ClassVar[SplitPolicy] = SplitPolicy.greedy()
    """The policy of a splitter without a policy, if its parents have no policy either."""

    def __init__(
        self,
        proto: Message,
        *,
        proto_as_initial_chunk: bool = True,
        parent_splitter: ComposableSplitter | None = None,
        fields_in_parent: Fields | None = None,
        policy: SplitPolicy | None = None,
    ) -> None:
        """Take the message `proto`. A child also takes its parent splitter, and the path to `proto` from the parent.

        `proto_as_initial_chunk` is False if all of the message is split into other chunks. `policy` defaults to the
        parent's policy.
        """
        self._given = proto
        self._parent = parent_splitter
        self._place = listed(() if fields_in_parent is None else fields_in_parent)
        self._own: Remainder | None = None if parent_splitter else Remainder(proto)
        self._tree = ChunkTree(with_base=proto_as_initial_chunk)
        self._policy = policy
        self._begun = self._built = False

    def build_chunks(self) -> Any:
        """Call `add_chunk` for each chunk. Subclasses override this method; `split` and `write` call it once."""

    @property
    def version_def(self) -> Any:
        """The `VersionDef` that goes into the metadata."""
        return version_def()

    @property
    def source(self) -> Message:
        """The message that the splitter was created with. It must not be changed."""
        return self._given

    @property
    def policy(self) -> SplitPolicy:
        """The policy of the split: the splitter's own policy, or the parent's policy, or `default_policy`."""
        if self._policy is not None:
            return self._policy
        return self.default_policy if self._parent is None else self._parent.policy

    @property
    def _proto(self) -> Message:
        """An editable copy of the remaining message. The copy of a child is a part of the root splitter's copy."""
        if self._own is None:
            located = self._located()
            inside = None if located is None else value_at(located[0].editable, located[1])
            if isinstance(inside, Message):
                return inside
            self._own = Remainder(self._given)
        return self._own.editable

    def _located(self) -> tuple[Remainder, Path] | None:
        """Return the root splitter's remainder, and the message's path in it.

        Return None if the message is not a part of the root's message.
        """
        root, place = self._from_root([])
        assert root._own is not None
        path = path_of(descriptor_of(root._given), place)
        inside = (value_at(message, path) for message in (root._given, root._own.readable))
        return (root._own, path) if any(each is self._given for each in inside) else None

    @property
    def _chunks(self) -> list[Chunk]:
        """The chunks so far, in the form of TensorFlow's guide. A child has the chunks of its root splitter."""
        root, _ = self._from_root([])
        root._tree.root.piece = root._base()
        return [piece.build() for piece in root._tree.pieces()]

    @property
    def _chunked_message(self) -> Any:
        """The `ChunkedMessage` of the chunks so far. A child has the `ChunkedMessage` of its root splitter."""
        return self._from_root([])[0]._tree.message()

    def split(self) -> tuple[list[Chunk], Any]:
        """Return the chunks, and the `ChunkedMessage` that places the chunks in the message.

        Raise `InvalidInput` for a splitter with a parent, because the parent gets its chunks.
        """
        pieces, message = self._pieces()
        return [piece.build() for piece in pieces], message

    def write(self, file_prefix: str | os.PathLike[str], writer_options: str | None = None) -> str:
        """Write `<prefix>.cpb`, or `<prefix>.pb` if no part of the message became a chunk, and return the path.

        `writer_options` are riegeli's options, such as `"uncompressed"`. The file appears only when it is complete.
        Raise `InvalidInput` for a splitter with a parent.
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
        """Add a chunk at the path `field_tags`, which consists of field names or numbers, indices and map keys.

        Empty tags make the chunk a part of the message itself. If `index` is set, the chunk is inserted before the
        chunk with this number. The content also stays in the message, unless the caller removes it from `self._proto`.
        Raise `InvalidInput` for a number in binary form, because the chunk of a number must be its text.
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
        """Return the root splitter's remainder, and the message's path in it.

        Raise `InvalidInput` if the message is not a part of the root's message.
        """
        if (located := self._located()) is None:
            place = show(path_of(descriptor_of(self._from_root([])[0]._given), self._from_root([])[1]))
            raise InvalidInput(
                "The child splitter's message is not the parent's message at this path: pass a part of "
                "self.source or self._proto",
                path=place or None,
            )
        return located

    def _from_root(self, tags: list[Key]) -> tuple[ComposableSplitter, list[Key]]:
        """Return the root splitter, and the tags that lead to `tags` from the root's message."""
        splitter = self
        while splitter._parent is not None:
            tags = [*splitter._place, *tags]
            splitter = splitter._parent
        return splitter, tags


SizeCheck: TypeAlias = Callable[[int], bool]


class SplitBasedOnSize(ComposableSplitter):
    """A base class of splitters that know the size of their message.

    Subclasses override `build_chunks`, which returns the number of bytes that left the message.
    """

    def __init__(self, proto: Message, proto_size: int, **options: Any) -> None:
        """Take the message, the message's size in bytes, and the options of `ComposableSplitter`."""
        super().__init__(proto, **options)
        self.proto_size = proto_size

    def build_chunks(self) -> int:
        """Add chunks; return the number of bytes that left the message."""
        return 0


class LargeMessageSplitter(SplitBasedOnSize):
    """A splitter that makes a large message one chunk, and leaves an empty message in its place."""

    def __init__(self, proto: Message, proto_size: int, size_check: SizeCheck | None = None, **options: Any) -> None:
        """Take `size_check`, which returns True for a size that is large.

        By default, a size is large from the policy's `min_chunk` on.
        """
        super().__init__(proto, proto_size, **options)
        self.size_check = size_check

    def build_chunks(self) -> int:
        """Add the chunk if the message is large; return the number of bytes that left the message."""
        large = (
            self.proto_size >= self.policy.min_chunk if self.size_check is None else self.size_check(self.proto_size)
        )
        if not large:
            return 0
        remainder, path = self._part_of_root()
        self._add(remainder.take(path), [])
        return self.proto_size


class RepeatedMessageSplitter(ComposableSplitter):
    """A splitter for a repeated field. It splits each element, and then the field into runs of elements.

    Each of `message_splitters` in turn splits every element.
    """

    def __init__(
        self,
        proto: Message,
        repeated_field: Fields,
        message_splitters: Sequence[type[SplitBasedOnSize]],
        **options: Any,
    ) -> None:
        """Take the message, the path of the field, the splitters, and the options of `ComposableSplitter`.

        Raise `InvalidInput` if the path does not lead to a repeated field, or if it leads to a map.
        """
        super().__init__(proto, **options)
        self.repeated_field = listed(repeated_field)
        self.message_splitters = message_splitters
        path = path_of(descriptor_of(proto), self.repeated_field)
        if not path or not path[-1].field.repeated or path[-1].field.key is not None or path[-1].at is not None:
            raise InvalidInput(f"{repeated_field!r} of {descriptor_of(proto).full_name} is not a repeated field")
        self._path = path

    def build_chunks(self) -> int:
        """Add the chunks; return the number of bytes that left the message."""
        holder, each = value_at(self.source, self._path[:-1]), self._path[-1].field
        if holder is None or not each.of(holder):
            return 0
        tree = self._from_root([])[0]._tree
        position = len(tree.root.below)
        sizes, moved = self._split_elements(each, each.of(holder))
        _, *runs = cut_into_runs(sizes, self.policy.max_chunk, self.policy.max_chunk)
        if runs:
            self._take_runs(each, runs)
            # Mergers can only fill existing elements, so runs come before the chunks that are parts of elements.
            below = tree.root.below
            below[position:] = below[-len(runs) :] + below[position : -len(runs)]
        return moved + sum(size for _, size in runs)

    def _split_elements(self, each: Shape, values: Sequence[Any]) -> tuple[list[int], int]:
        sizes, moved = [], 0
        for i, value in enumerate(values):
            size = message_size(value) if each.message else value_size(each, value, 1)
            for splitter in self.message_splitters:
                place = [*self.repeated_field, i]
                left = splitter(value, size, parent_splitter=self, fields_in_parent=place).build_chunks()
                size, moved = size - left, moved + left
            sizes.append(each.tag_size + (delimited(size) if each.message else size))
        return sizes, moved

    def _take_runs(self, each: Shape, runs: Sequence[tuple[range, int]]) -> None:
        remainder, path = self._part_of_root()
        place = (*path, *self._path[:-1])
        nodes = [self._add(None, self.repeated_field[:-1]) for _ in runs]
        # The last run comes first, because taking a run shifts the indices of later elements.
        for (run, size), node in reversed(list(zip(runs, nodes, strict=True))):
            node.piece = remainder.take_run(place, each, run, size)


class AutoSplitter(ComposableSplitter):
    """A splitter of any message. Large parts become chunks, and long repeated fields and maps are cut."""

    default_policy = SplitPolicy()
    _plan: Plan | None = None

    def plan(self) -> Plan:
        """Return the plan of the chunks. It depends only on sizes. The message is not split yet."""
        return plan(self.source, self.policy, self._leaves)

    def build_chunks(self) -> int:
        """Add the chunks of the plan; return the total bytes of these chunks."""
        self._plan = self.plan()
        if self._plan.size and not (self._tree.with_base or self._parent):
            raise InvalidInput(
                f"{self._plan.size} bytes remain in the message after splitting: use proto_as_initial_chunk=True "
                "to keep them"
            )
        remainder, path = self._part_of_root()
        root, place = self._from_root([])
        prefix = path_of(descriptor_of(root.source), place)
        _Execution(remainder, root._tree).run(self._plan.entries, root._tree.root, prefix, path)
        return sum(map(_bytes_in, self._plan.entries))

    def _base(self) -> LazyChunk:
        assert self._own is not None
        return self._own.base(None if self._plan is None else self._plan.size)

    @staticmethod
    def _leaves(field: Shape) -> bool:
        return True


class _GreedySplitter(AutoSplitter):
    """A base class of splitters for certain types. They split only messages that are too large for one chunk."""

    default_policy = SplitPolicy.greedy()
    types: ClassVar[frozenset[str]]

    def __init__(self, proto: Message, **options: Any) -> None:
        super().__init__(proto, **options)
        name = descriptor_of(proto).name
        if name not in self.types:
            raise InvalidInput(f"{type(self).__name__} splits {' or '.join(sorted(self.types))}, not {name}")

    def plan(self) -> Plan:
        """Return the plan of the chunks. A message that fits into one chunk is not split."""
        found = super().plan()
        return Plan(found.at_most, ()) if found.at_most <= self.policy.max_chunk else found

    @staticmethod
    def _leaves(field: Shape) -> bool:
        return field.type == FieldDescriptor.TYPE_BYTES


class GraphDefSplitter(_GreedySplitter):
    """A splitter of a TensorFlow `GraphDef`. Chunks are constants, large nodes and functions, and runs of nodes."""

    types = frozenset({"GraphDef"})


class SavedModelSplitter(_GreedySplitter):
    """A splitter of a TensorFlow `SavedModel`. It splits all meta graphs and their large parts."""

    types = frozenset({"SavedModel"})


class OnnxSplitter(_GreedySplitter):
    """A splitter of an ONNX model, graph or function.

    Chunks are initializers, tensors in attributes and subgraphs, and runs of nodes.
    """

    types = frozenset({"ModelProto", "GraphProto", "FunctionProto"})


def _bytes_in(entry: Entry) -> int:
    return entry.size + sum(map(_bytes_in, entry.inside))


class _Execution:
    """An executor of a plan, which first numbers all chunks and then fills them."""

    def __init__(self, remainder: Remainder, tree: ChunkTree) -> None:
        self._remainder = remainder
        self._tree = tree

    def run(self, entries: Sequence[Entry], parent: ChunkNode, prefix: Path, at: Path) -> None:
        """Add `entries`, whose message is at the path `at` in the remainder, and at `prefix` below `parent`."""
        nodes = [self._tree.add(parent, tags_of((*prefix, *entry.path))) for entry in entries]
        # The last entry comes first: runs lead the plan, but parts must leave elements before a run takes the elements.
        for entry, node in reversed(list(zip(entries, nodes, strict=True))):
            place = (*at, *entry.path)
            self.run(entry.inside, node, (), place)
            if entry.run is None:
                node.piece = self._remainder.take(place, entry.size)
            else:
                node.piece = self._remainder.take_run(place, entry.run.field, entry.run.keys, entry.size)

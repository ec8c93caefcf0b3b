"""Protos of any size, which are read without parsing them: their nodes, views and chunks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from protoslice import _core
from protoslice.defaults import LARGEST_MESSAGE, MAX_CHUNK, MIN_CHUNK
from protoslice.errors import InvalidInput
from protoslice.facts import Node
from protoslice.library.indexing import Form
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource, SourceOwner


class LargeChunkWarning(UserWarning):
    """The warning about chunks that are too large for protobuf runtimes."""


def size_problem(path: str, size: int) -> str | None:
    """Return a message about a chunk that is too large for protobuf runtimes, or None if it is small enough."""
    if size <= LARGEST_MESSAGE:
        return None
    return (
        f"chunk {path or '(remainder)'} has {size} bytes, but protobuf runtimes parse at most "
        f"{LARGEST_MESSAGE}: lower max_chunk, or add a rule to split it further. If it is a single value, "
        "read it by byte range"
    )


_ALL_NODES = 1 << 40
_STRIDE = 64 << 20  # bytes that are hashed between two calls of `advance`


class View(Rope):
    """The bytes at a path of a proto: a rope that also has the kind and the type of its content.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     view = proto.merge("graph.name")
        ...     view.kind, bytes(view)
        ('string', b'tour')
    """

    __slots__ = ("kind", "type")

    def __init__(
        self,
        core: _core.Rope,
        sources: Sequence[RangeSource],
        kind: str,
        type_name: str | None,
        read: _core.Sources | None = None,
    ) -> None:
        super().__init__(core, sources, read)
        self.kind = kind
        """The kind of the content: `message`, a scalar kind such as `bytes`, `repeated`, or `unknown`."""
        self.type = type_name
        """Full name of the message type; None for other kinds and for unknown types."""


@dataclass(frozen=True, slots=True)
class Large:
    """A large part of a proto, with its size in bytes: one field, or `count` small elements of one field.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     proto.largest(1)[0].path
        'graph.initializer[0].raw_data'
    """

    path: str
    size: int
    count: int | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a split: a message without its extracted parts, or the content of a bytes field.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     chunk = proto.split()[1]
        ...     chunk.kind, chunk.path, chunk.size
        ('bytes', 'graph.initializer[0].raw_data', 16000000)
    """

    index: int
    kind: str
    type: str | None
    path: str
    rope: Rope

    @property
    def size(self) -> int:
        """The length in bytes."""
        return self.rope.size


class Split(Sequence[Chunk]):
    """The sequence of a proto's chunks, with the metadata to merge them; `Proto.split` returns it.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     len(proto.split(min_chunk=1 << 20))
        4
    """

    def __init__(self, plan: _core.Plan, sources: Sequence[RangeSource]) -> None:
        self._plan = plan
        self._sources = sources
        self._read = _core.Sources(sources)

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> Chunk:  # type: ignore[override]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"chunk index out of range: there are {len(self)} chunks")
        kind, type_name, path, core = self._plan.chunk(number)
        return Chunk(number, kind, type_name, path, Rope(core, self._sources, self._read))

    @property
    def plan(self) -> _core.Plan:
        """The engine's plan, with the places of all chunks."""
        return self._plan

    @property
    def metadata(self) -> bytes:
        """The serialized `ChunkMetadata` of TensorFlow's proto splitter, as in the file that `cpb` returns."""
        return self._plan.metadata()

    @property
    def problem(self) -> str | None:
        """A message about chunks above 2 GiB, which protobuf runtimes cannot parse, or None if there are none."""
        found = [text for chunk in self if (text := size_problem(chunk.path, chunk.size)) is not None]
        if not found:
            return None
        return found[0] if len(found) == 1 else f"{found[0]} ({len(found) - 1} more chunks are too large)"

    def hashes(self, advance: Callable[[int], None] | None = None) -> Iterator[int]:
        """Yield the hash of each chunk's record in a `.cpb` file, in order; this reads all chunks.

        Args:
            advance: Function that receives the number of bytes hashed since its last call.

        Returns:
            An iterator of 64-bit integers.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     len(list(proto.split().hashes()))
            4
        """
        for chunk in self:
            hasher = _core.ChunkHasher(chunk.size)
            for start in range(0, chunk.size, _STRIDE):
                part = chunk.rope.part(start, start + _STRIDE)
                hasher.update(part)
                if advance is not None:
                    advance(part.size)
            yield hasher.finish()

    def cpb(self, advance: Callable[[int], None] | None = None) -> Rope:
        """Return the chunked file (`.cpb`) that TensorFlow's Merger reads; all chunks are read once to hash them.

        If the chunks come from a chunked file, return that file without reading it. Issue a `LargeChunkWarning` for
        chunks above 2 GiB, which protobuf runtimes cannot parse.

        Args:
            advance: Function that receives the number of bytes hashed since its last call.

        Returns:
            The file as a rope.

        Examples:
            >>> with protoslice.open("model.onnx") as proto, open("model.cpb", "wb") as file:
            ...     written = proto.split().cpb().write_to(file)
        """
        if (problem := self.problem) is not None:
            warnings.warn(problem, LargeChunkWarning, stacklevel=2)
        if self._plan.kept:
            return Rope(self._plan.cpb([]), self._sources, self._read)
        return Rope(self._plan.cpb(list(self.hashes(advance))), self._sources, self._read)


class RuleSplitter(Protocol):
    """An object that provides split rules, such as a class of another package; see `protoslice.splitters`."""

    def rules(self, proto: Proto, /) -> Sequence[str]:
        """Return split rules for `proto`, based on its type and its index; an empty result splits the proto by size."""


class Proto(SourceOwner):
    """An indexed proto, which is read in the same way for serialized, chunked and text files; `open` returns it.

    Close the proto after use, or use it in a `with` statement. A closed proto's ropes can no longer be read.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     bytes(proto.merge("graph.node[1].op_type"))
        b'Mul'
    """

    def __init__(
        self,
        sources: Sequence[RangeSource],
        *,
        index: bytes,
        flat: _core.Schema | None,
        image: _core.Rope | None = None,
        limits: _core.Limits | None = None,
        form: Form = "serialized",
        why: str | None = None,
        own_plan: Callable[[], _core.Plan | None] = lambda: None,
    ) -> None:
        self.sources = tuple(sources)
        """The sources to which the ropes of the document refer."""
        super().__init__(self.sources)
        self.index = _core.Index(index)
        self.index_bytes = index
        """The serialized index; if it is passed to `open` with the same bytes, `open` does not scan them."""
        self.document = _core.Document(self.index, flat, self.sources, image, limits=limits)
        """The engine's document of the proto."""
        self.type = self.index.root_type
        """Full name of the root's message type, or None if it is unknown."""
        self.why = why
        """The reason why the type was chosen, or why it is unknown."""
        self.form = form
        """The form of the file: `serialized`, `chunked` or `text`."""
        self._own_plan = own_plan

    @property
    def size(self) -> int:
        """The size in bytes of the serialized proto; for a chunked file, this is the size after merging."""
        return self.index.size

    @cached_property
    def rope(self) -> View:
        """The serialized proto: the bytes of a serialized file, or the merged chunks of a chunked file."""
        return self.merge()

    def merge(
        self,
        path: str = "",
        fields: Sequence[str] | None = None,
        omit_larger_than: int | None = None,
        omit: Sequence[str] = (),
    ) -> View:
        """Return the bytes at a path: a serialized message, the content of bytes or text, or a scalar as text.

        Fields keep their order and encoding.

        Args:
            path: Path such as `graph.node[3]`; the whole proto if empty.
            fields: Paths below `path` to keep; all if None.
            omit_larger_than: Size in bytes; larger fields of bytes, strings or packed numbers are left out.
            omit: Paths below `path` to leave out.

        Returns:
            A rope, which is read when it is used.

        Raises:
            NotFound: There is nothing at the path.
            InvalidInput: A path is invalid.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     proto.merge(omit_larger_than=1024).size
            389
        """
        if isinstance(fields, str) or isinstance(omit, str):
            raise InvalidInput("Invalid fields or omit: pass a list of paths, not a single path")
        if omit_larger_than is not None:
            _check_size("omit_larger_than", omit_larger_than)
        kind, type_name, core = self.document.view(path, fields, omit_larger_than, omit)
        return View(core, self.sources, kind, type_name, self._read)

    def tree(self, path: str = "", *, start: int = 0, limit: int | None = None) -> list[Node]:
        """Return the nodes directly below a path.

        Args:
            path: Path such as `graph.node[3]`; the root if empty.
            start: Number of the first node.
            limit: Largest number of nodes, or None for all nodes.

        Returns:
            The nodes, each with its path, kind, type, size in bytes and value.

        Raises:
            NotFound: There is nothing at the path.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     [node.path for node in proto.tree("graph", limit=2)]
            ['graph.node', 'graph.name']
        """
        limit = _ALL_NODES if limit is None else limit
        _check_size("start", start)
        _check_size("limit", limit)
        rows, _ = self.document.children(path, start, limit)
        return [node_at(path, row) for row in rows]

    def count(self, path: str = "") -> int:
        """Return the number of nodes directly below a path.

        Args:
            path: Path such as `graph.node`; the root if empty.

        Returns:
            The number that `tree` would return without a limit.

        Raises:
            NotFound: There is nothing at the path.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     proto.count("graph.node")
            4
        """
        return self.document.children(path, 0, 0)[1]

    def largest(self, limit: int = 10) -> list[Large]:
        """Return the largest parts of the proto, largest first.

        Args:
            limit: Largest number of parts.

        Returns:
            The parts, each with its path and size in bytes. Small elements of one field count as one part, with their
            number.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     [part.size for part in proto.largest(2)]
            [16000000, 12000000]
        """
        _check_size("limit", limit)
        return [Large(*row) for row in self.document.largest(limit)]

    def split(
        self,
        *,
        min_chunk: int = MIN_CHUNK,
        max_chunk: int = MAX_CHUNK,
        rules: Sequence[str] = (),
        splitter: RuleSplitter | None = None,
    ) -> Split:
        """Split the proto into chunks, without reading or writing them.

        Args:
            min_chunk: Fields of at least this size in bytes become chunks.
            max_chunk: Runs of repeated elements are cut into chunks of about this size in bytes.
            rules: Split rules, such as `node: every 1000` or `node[*].attr["value"]: always`; they override the
                sizes.
            splitter: Object that provides further rules for this proto, which are applied before `rules`.

        Returns:
            The chunks, and the metadata to merge them.

        Raises:
            InvalidInput: A rule or a size is invalid.
            NotFound: A rule names a field that the type lacks.
            Unsupported: A rule cannot be applied, for example because the type is unknown.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     [chunk.path for chunk in proto.split(rules=["graph.node: every 2"])][1:3]
            ['graph.node[0:2]', 'graph.node[2:4]']
        """
        if isinstance(rules, str):
            raise InvalidInput("Invalid rules: pass a list of rules, not a single rule")
        given = [*(splitter.rules(self) if splitter is not None else ()), *rules]
        if min_chunk < 1 or max_chunk < min_chunk:
            raise InvalidInput("Invalid chunk sizes: min_chunk must be at least 1, and max_chunk at least min_chunk")
        _check_size("max_chunk", max_chunk)
        return Split(self.document.plan(min_chunk, max_chunk, given), self.sources)

    @cached_property
    def own_chunks(self) -> Split | None:
        """The chunks of a chunked file, in the order of the file, or None for another file."""
        plan = self._own_plan()
        return None if plan is None else Split(plan, self.sources)

    @cached_property
    def chunks(self) -> Split:
        """The chunks of a chunked file; for another file, the chunks that the default sizes yield."""
        return self.own_chunks or self.split()

    @property
    def metadata(self) -> bytes:
        """The serialized `ChunkMetadata` of `chunks`."""
        return self.chunks.metadata

    def verify(self) -> None:
        """Raise `CorruptModel` unless all checksums of the index, and of the records of a chunked file, match.

        A chunked file is read completely; the bytes of other protos have no checksums.

        Raises:
            CorruptModel: A checksum does not match.

        Examples:
            >>> with protoslice.open("model.onnx") as proto:
            ...     proto.verify()
        """
        self.index.verify()
        # The opening has already compared the checksums of compressed records, since it decodes only these.
        if self.form == "chunked":
            _core.Chunked.verify(self.sources[0])

    def __repr__(self) -> str:
        return f"<Proto {self.type or 'of unknown type'}, {self.size} bytes>"


def _check_size(name: str, value: int) -> None:
    if not 0 <= value < 1 << 63:
        raise InvalidInput(f"Invalid {name} {value}: use a size from 0 to 2^63 - 1")


def node_at(above: str, row: tuple[Any, ...]) -> Node:
    """Return the node for a `row` from the engine's `children`, below the path `above`."""
    step, *facts = row
    if not above:
        return Node(step.removeprefix("."), *facts)
    # The step of an element begins with a bracket, and that of an extension with a dot: neither needs another dot.
    return Node(above + step if step.startswith(("[", ".")) else f"{above}.{step}", *facts)

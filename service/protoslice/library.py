"""Protos of any size, not parsed: their parts, views and chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol, Self

from protoslice import _core
from protoslice.defaults import MAX_CHUNK, MIN_CHUNK
from protoslice.errors import InvalidInput
from protoslice.facts import Node
from protoslice.indexing import Form
from protoslice.ropes import Rope
from protoslice.sources import RangeSource

__all__ = ["Chunk", "Form", "Large", "Node", "Proto", "Split", "View", "node_at"]

_ALL_NODES = 1 << 40
_STRIDE = 64 << 20  # chunks are hashed in strides, so that somebody can watch


class View(Rope):
    """The bytes at a path: a rope that knows what it is."""

    __slots__ = ("kind", "type")

    def __init__(self, core: _core.Rope, sources: _core.Sources, kind: str, type_name: str | None) -> None:
        super().__init__(core, sources)
        self.kind = kind
        """`message`, the kind of a scalar field such as `bytes`, `repeated`, or `unknown`."""
        self.type = type_name
        """The full name of the message type, for a message of a known type."""


@dataclass(frozen=True, slots=True)
class Large:
    """A large part: one field, or `count` small elements of one field together."""

    path: str
    size: int
    count: int | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a split: a message with its extracted parts left out, or the content of a bytes field."""

    index: int
    kind: str
    type: str | None
    path: str
    rope: Rope

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.rope.size


class Split(Sequence[Chunk]):
    """The chunks of a proto under one policy, and the metadata that says how they make it up."""

    def __init__(self, plan: _core.Plan, sources: Sequence[RangeSource]) -> None:
        self._plan = plan
        self._sources = sources
        self._read = _core.Sources(sources)

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> Chunk:  # type: ignore[override]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} chunks")
        kind, type_name, path, core = self._plan.chunk(number)
        return Chunk(number, kind, type_name, path, Rope(core, self._read))

    @property
    def plan(self) -> _core.Plan:
        """What the engine knows of the chunks: where each of them lies."""
        return self._plan

    @property
    def metadata(self) -> bytes:
        """The serialized `ChunkMetadata` of TensorFlow's proto splitter, as the file of `cpb` holds it."""
        return self._plan.metadata()

    def hashes(self, advance: Callable[[int], None] | None = None) -> Iterator[int]:
        """The hash of each chunk in a `.cpb` file, in order. Reads them all, and tells `advance` how far it is."""
        for chunk in self:
            hasher = _core.ChunkHasher(chunk.size)
            for start in range(0, chunk.size, _STRIDE):
                part = chunk.rope.core.slice(start, start + _STRIDE)
                hasher.update(part, self._sources)
                if advance is not None:
                    advance(part.size)
            yield hasher.finish()

    def cpb(self, advance: Callable[[int], None] | None = None) -> Rope:
        """The chunked file that TensorFlow's Merger reads. Reads every chunk once, for the hashes of the file."""
        return Rope(self._plan.cpb(list(self.hashes(advance))), self._read)


class _Closable(Protocol):
    """Something that is closed with a proto."""

    def close(self) -> None:
        """Give it back."""


class Proto:
    """An indexed proto: serialized, in chunks or as text, every view works alike."""

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
    ) -> None:
        self.sources = tuple(sources)
        """What its ropes are over."""
        self._read = _core.Sources(self.sources)
        self.index = _core.Index(index)
        self.index_bytes = index
        """The serialized index; keep it, and the next opening reads nothing else."""
        self.document = _core.Document(self.index, flat, self.sources, image, limits=limits)
        """The engine's view of it."""
        self.type = self.index.root_type
        """The full name of the root's message type; none when it is not known."""
        self.why = why
        """What told the type, or why it could not be told."""
        self.form = form
        """How it is written in its file."""
        self._owned: list[_Closable] = []

    @property
    def size(self) -> int:
        """Bytes of the whole proto."""
        return self.index.size

    @cached_property
    def rope(self) -> View:
        """The whole proto: a raw one byte for byte, a chunked one merged."""
        return self.merge()

    def merge(self, path: str = "", fields: Sequence[str] | None = None, omit_larger_than: int | None = None) -> View:
        """What stands at `path`: a message serialized, the content of bytes or text, the text of a scalar.

        `fields` keep only these paths below it; `omit_larger_than` leaves out every bytes, packed or string field
        beyond that size. What is kept stands in its order and encoding.
        """
        if isinstance(fields, str):
            raise InvalidInput("fields is a list of paths, not one path")
        if omit_larger_than is not None:
            _check_size("omit_larger_than", omit_larger_than)
        kind, type_name, core = self.document.view(path, fields, omit_larger_than)
        return View(core, self._read, kind, type_name)

    def tree(self, path: str = "", *, start: int = 0, limit: int | None = None) -> list[Node]:
        """What lies directly below `path`, from place `start` on, at most `limit` of it."""
        limit = _ALL_NODES if limit is None else limit
        _check_size("start", start)
        _check_size("limit", limit)
        rows, _ = self.document.children(path, start, limit)
        return [node_at(path, row) for row in rows]

    def count(self, path: str = "") -> int:
        """How much lies directly below `path`."""
        return self.document.children(path, 0, 0)[1]

    def largest(self, limit: int = 10) -> list[Large]:
        """What makes it large: at most `limit` parts, the largest first."""
        _check_size("limit", limit)
        return [Large(*row) for row in self.document.largest(limit)]

    def split(self, *, min_chunk: int = MIN_CHUNK, max_chunk: int = MAX_CHUNK) -> Split:
        """The chunks under a policy: fields of at least `min_chunk` bytes, runs cut at `max_chunk`."""
        if min_chunk < 1 or max_chunk < min_chunk:
            raise InvalidInput("min_chunk is at least 1, and max_chunk no smaller")
        _check_size("max_chunk", max_chunk)
        return Split(self.document.plan(min_chunk, max_chunk), self.sources)

    @cached_property
    def chunks(self) -> Split:
        """The chunks under the default policy."""
        return self.split()

    @property
    def metadata(self) -> bytes:
        """The serialized `ChunkMetadata` of `chunks`."""
        return self.chunks.metadata

    def verify(self) -> None:
        """Raise `CorruptModel` unless the checksums hold: those of the index, and of the records of a chunked file.

        Opening checks those of compressed records, which it reads anyway; this reads all of a chunked file. Other
        protos have no checksums.
        """
        self.index.verify()
        if self.form == "chunked":
            _core.Chunked.verify(self.sources[0])

    def own(self, *taken: _Closable) -> None:
        """Close these with it."""
        self._owned += taken

    def close(self) -> None:
        """Give back the files that opening it took; its ropes cannot be read any more."""
        self._read.close()
        while self._owned:
            self._owned.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Proto {self.type or 'of unknown type'}, {self.size} bytes>"


def _check_size(name: str, value: int) -> None:
    if not 0 <= value < 1 << 63:
        raise InvalidInput(f"{name} is {value}, which is no size: from 0 up to 2^63 - 1 is due")


def node_at(above: str, row: tuple[Any, ...]) -> Node:
    """The node of one row of the engine's `children`, whose parent stands at the path `above`."""
    step, *facts = row
    return Node(above + step if step.startswith("[") or not above else f"{above}.{step}", *facts)

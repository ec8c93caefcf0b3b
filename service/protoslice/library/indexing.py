"""Preparation of files for views: decoding and indexing of serialized, chunked and text protos.

`decode` writes all bytes that the file does not hold in serialized form to a side: nothing for a serialized message,
the compressed records of a chunked proto, the whole message of a text. `index` then indexes the proto. Both block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from protoslice import _core, schema
from protoslice.detection import HEAD, Detection, candidates, detect_message
from protoslice.errors import OF_MODELS, InvalidInput
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource

Form = Literal["serialized", "chunked", "text"]

SMALLEST_FLOOR: Final = 64
"""Smallest floor in bytes of large protos: below, an index may take twenty times its proto."""
_SMALL_PROTO: Final = 1 << 20
"""Bytes of a proto up to which any floor is allowed."""


class KnownTypes(Protocol):
    """Message types by full name; raise `Unsupported` for an unknown type."""

    def of(self, name: str, /) -> schema.TypeSchema:
        """Return the schema of the type `name`."""

    def flat(self, name: str, /) -> _core.Schema:
        """Return the engine's table for messages of the type `name`."""


class Side(Protocol):
    """Destination of decoded bytes."""

    def write(self, data: bytes, /) -> None:
        """Append `data`."""

    def source(self) -> RangeSource:
        """Return the bytes written, complete: no `write` may follow."""


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A file to index, and known facts about it."""

    source: RangeSource
    form: Form
    type: str | None
    """Full name of the root's message type; None if unknown."""
    why: str | None = None
    """The reason for the type, or for None."""
    name: str | None = None
    """File name without folders; a hint at the type of a chunked proto."""
    tell: bool = False
    """True to detect the type of a chunked proto from its chunks."""


@dataclass(frozen=True, slots=True)
class IndexingTerms:
    """Message types, limits and options for indexing."""

    types: KnownTypes
    limits: _core.Limits | None = None
    decoding: _core.Limits | None = None
    """Limits for decoding the records of a chunked proto."""
    parse: Callable[[bytes, schema.TypeSchema], bytes] = schema.serialized
    """Function from a text and its type to the serialized message."""
    floor: int = _core.DEFAULT_FLOOR
    index: bytes | None = None
    """An existing index of the same bytes, which spares the scan."""
    progress: Callable[[int, int], object] | None = None
    """Called now and then with the bytes done and the total."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file and the sources of its bytes: the file itself and, unless it is serialized, the side."""

    file: ProtoFile
    sources: tuple[RangeSource, ...]
    chunked: _core.Chunked | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """A proto with its index."""

    type: str | None
    why: str | None
    flat: _core.Schema | None
    """The engine's table of the root's type; None if unknown."""
    index: bytes
    sources: tuple[RangeSource, ...]
    image: _core.Rope | None
    """The serialized proto as a rope over `sources`; None if it is the first source itself."""
    chunked: _core.Chunked | None = None
    """The chunks that the file came with; None for other files."""

    def own_plan(self) -> _core.Plan | None:
        """Return the plan of a chunked file; None for other files, and for the split protos of XLA."""
        return None if self.chunked is None else self.chunked.plan(self.flat, self.type)


def decode(file: ProtoFile, side: Side, terms: IndexingTerms) -> Decoded:
    """Write to `side` the bytes of `file` that are compressed or in text format.

    Raise `Unsupported` for a riegeli file that is no chunked proto, `CorruptModel` for a malformed file or text,
    `LimitExceeded` above the limits.
    """
    chunked = None
    if file.form == "serialized":
        return Decoded(file, (file.source,))
    if file.form == "chunked":
        chunked = _core.Chunked(file.source, side, limits=terms.decoding, progress=terms.progress)
    else:
        schema.check_text_size(file.source.size)
        read_by = terms.types.of(file.type or "")
        side.write(terms.parse(file.source.read(0, file.source.size), read_by))
    return Decoded(file, (file.source, side.source()), chunked)


def index(decoded: Decoded, terms: IndexingTerms) -> Indexed:
    """Index a decoded file, or use `terms.index` if given; detect the type if `file.tell`.

    Raise `InvalidInput` for a floor that is out of range, `Unsupported` for an unknown type.
    """
    file, sources, chunked = decoded.file, decoded.sources, decoded.chunked
    name, why = file.type, file.why
    if chunked is not None and file.tell:
        name, why = _told(chunked, sources, file.name)
    flat = terms.types.flat(name) if name is not None else None
    image = None
    if chunked is not None:
        image = chunked.image(flat, name, sources)
    elif file.form == "text":
        image = _core.Rope([(1, 0, sources[1].size)] if sources[1].size else [])
    _check_floor(terms.floor, file.source.size if image is None else image.size)
    made = terms.index or _core.index_source(
        sources, image, flat, name, floor=terms.floor, limits=terms.limits, progress=terms.progress
    )
    return Indexed(name, why, flat, made, sources, image, chunked)


def _check_floor(floor: int, size: int) -> None:
    least = SMALLEST_FLOOR if size > _SMALL_PROTO else 1
    if not least <= floor < 1 << 63:
        raise InvalidInput(f"Invalid floor {floor}: use at least {least} for a proto of {size} bytes")


def _told(chunked: _core.Chunked, sources: Sequence[RangeSource], filename: str | None) -> tuple[str | None, str]:
    """Return the type of a chunked proto's root, and the reason: its manifest, root chunk or a trial merge.

    The type may be None.
    """
    if chunked.declared is not None:
        return chunked.declared, "named by the manifest of the split proto"
    found = _look(chunked.root(), sources, filename)
    if found.type_name is not None:
        return found.type_name, found.why
    # The root chunk lacks its extracted parts and may resemble any type. A merge as the right type restores a message
    # that is detected as such; a merge as a wrong one fails, since the chunks do not fit its fields.
    types = schema.bundled()
    for name in candidates():
        try:
            image = chunked.image(types.flat(name), name, sources)
        except OF_MODELS:
            continue
        if _look(image, sources, filename).type_name == name:
            return name, f"has the fields of {name} after merging"
    return None, found.why


def _look(rope: _core.Rope, sources: Sequence[RangeSource], filename: str | None) -> Detection:
    head = Rope(rope.slice(0, HEAD), sources).read()
    return detect_message(head, filename)

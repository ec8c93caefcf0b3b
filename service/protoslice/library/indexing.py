"""Preparation of files for views: decoding and indexing of serialized, chunked and text protos.

`decode` writes decoded bytes to a side, which is another source of bytes. For a chunked proto, these are the decoded
contents of its compressed records; for a text, they are the whole message. For a serialized message, nothing is
decoded. `index` then indexes the proto. Both functions block.
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
"""Smallest floor in bytes for large protos; with a smaller floor, an index may be 20 times as large as its proto."""
_SMALL_PROTO: Final = 1 << 20
"""Largest size in bytes of a proto for which every floor is allowed."""


class KnownTypes(Protocol):
    """The known message types, by full name; its methods raise `Unsupported` for an unknown type."""

    def of(self, name: str, /) -> schema.TypeSchema:
        """Return the schema of the type `name`."""

    def flat(self, name: str, /) -> _core.Schema:
        """Return the engine's table for messages of the type `name`."""


class Side(Protocol):
    """A destination of decoded bytes."""

    def write(self, data: bytes, /) -> None:
        """Append `data`."""

    def source(self) -> RangeSource:
        """Return a source of all bytes that were written; the caller must not write any more."""


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A file that is to be indexed, and the known facts about it."""

    source: RangeSource
    form: Form
    type: str | None
    """Full name of the root's message type, or None if it is unknown."""
    why: str | None = None
    """The reason why the type was chosen, or why it is unknown."""
    name: str | None = None
    """File name without folders, which helps to detect the type of a chunked proto."""
    tell: bool = False
    """True if the type of a chunked proto must be detected from its chunks."""


@dataclass(frozen=True, slots=True)
class IndexingTerms:
    """The message types, limits and options of an indexing."""

    types: KnownTypes
    limits: _core.Limits | None = None
    decoding: _core.Limits | None = None
    """Limits for the decoding of a chunked proto's records."""
    parse: Callable[[bytes, schema.TypeSchema], bytes] = schema.serialized
    """Function that receives a text and its type, and returns the serialized message."""
    floor: int = _core.DEFAULT_FLOOR
    index: bytes | None = None
    """An existing index of the same bytes, which makes a scan unnecessary."""
    progress: Callable[[int, int], object] | None = None
    """Function that is called now and then with the number of bytes done and the total."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file and the sources of its bytes: the file itself, and the decoded bytes if the file is not serialized."""

    file: ProtoFile
    sources: tuple[RangeSource, ...]
    chunked: _core.Chunked | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """A proto with its index."""

    type: str | None
    why: str | None
    flat: _core.Schema | None
    """The engine's table of the root's type, or None if the type is unknown."""
    index: bytes
    sources: tuple[RangeSource, ...]
    image: _core.Rope | None
    """The serialized proto as a rope over `sources`, or None if the first source is the serialized proto."""
    chunked: _core.Chunked | None = None
    """The chunks of a chunked file, or None for another file."""

    def own_plan(self) -> _core.Plan | None:
        """Return the plan of a chunked file, or None for other files and for the split protos of XLA."""
        return None if self.chunked is None else self.chunked.plan(self.flat, self.type)


def decode(file: ProtoFile, side: Side, terms: IndexingTerms) -> Decoded:
    """Decode a file that is compressed or in text format, and write the decoded bytes to `side`.

    Raise `Unsupported` for a riegeli file that is not a chunked proto, and `CorruptModel` for a malformed file or
    text. Raise `LimitExceeded` if the file exceeds the limits.
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
    """Index a decoded file, or use the index in `terms` if there is one; detect the type if `file.tell` is True.

    Raise `InvalidInput` if the floor is out of range, and `Unsupported` for an unknown type.
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
    """Return the type of a chunked proto's root, or None, and the reason for it.

    The type comes from the file's manifest, from the root chunk, or from a trial merge of the chunks.
    """
    if chunked.declared is not None:
        return chunked.declared, "named by the manifest of the split proto"
    found = _look(chunked.root(), sources, filename)
    if found.type_name is not None:
        return found.type_name, found.why
    # The root chunk lacks its extracted parts and may resemble any type. Merged as the right type, the message is
    # detected as that type. Merged as a wrong type, it fails, since the chunks do not fit the fields of that type.
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

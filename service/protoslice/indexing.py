"""From a file to an indexed proto: a serialized message, a chunked proto or a text. Blocking.

`decode` writes what does not stand in the file serialized to a side, `index` makes the index of the whole. Serialized
messages decode to nothing; of a chunked proto, compressed records do; a text does whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from protoslice import _core, schema
from protoslice.errors import OF_MODELS, InvalidInput
from protoslice.ropes import Rope
from protoslice.schema.detection.detect import HEAD
from protoslice.sources import RangeSource

__all__ = [
    "SMALLEST_FLOOR",
    "Decoded",
    "Form",
    "Indexed",
    "IndexingTerms",
    "KnownTypes",
    "ProtoFile",
    "Side",
    "decode",
    "index",
]

Form = Literal["serialized", "chunked", "text"]

SMALLEST_FLOOR: Final = 64
"""Bytes: below, an index may be twenty times the size of its proto; allowed for small ones alone."""
_SMALL_PROTO: Final = 1 << 20
"""Bytes of a proto up to which any floor is allowed."""


class KnownTypes(Protocol):
    """Message types by their full names; `Unsupported` for a type that is not known."""

    def of(self, name: str, /) -> schema.TypeSchema:
        """The schema of the type `name`."""

    def flat(self, name: str, /) -> _core.Schema:
        """The table by which the engine reads messages of the type `name`."""


class Side(Protocol):
    """The place for decoded bytes."""

    def write(self, data: bytes, /) -> None:
        """Append `data`."""

    def source(self) -> RangeSource:
        """The bytes written; after this call nothing more is written."""


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A file that is to be indexed, and what is known of it."""

    source: RangeSource
    form: Form
    type: str | None
    """The full name of the root's message type; None where it is not known."""
    why: str | None = None
    """The reason for the type, or for None."""
    name: str | None = None
    """The file's name without its folders: for a chunked proto a hint at its type."""
    tell: bool = False
    """Whether the chunks of a chunked proto tell its type."""


@dataclass(frozen=True, slots=True)
class IndexingTerms:
    """The message types and the bounds for indexing."""

    types: KnownTypes
    limits: _core.Limits | None = None
    decoding: _core.Limits | None = None
    """The limits for decoding the records of a chunked proto."""
    parse: Callable[[bytes, schema.TypeSchema], bytes] = schema.serialized
    """Serializes the message in a text."""
    floor: int = _core.DEFAULT_FLOOR
    index: bytes | None = None
    """The index of the same bytes, made before: spares the scan."""
    progress: Callable[[int, int], object] | None = None
    """Called now and then with the bytes looked at and the bytes there are."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file, and the sources that its bytes are in: the file itself, then the side if the file may need one."""

    file: ProtoFile
    sources: tuple[RangeSource, ...]
    chunked: _core.Chunked | None = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """A proto with its index."""

    type: str | None
    why: str | None
    flat: _core.Schema | None
    """The table that the proto is read by; None where its type is not known."""
    index: bytes
    sources: tuple[RangeSource, ...]
    image: _core.Rope | None
    """The serialized proto over its sources; None where it is the first source as it is."""


def decode(file: ProtoFile, side: Side, terms: IndexingTerms) -> Decoded:
    """Write to `side` what of `file` does not stand there serialized.

    Raises `Unsupported` for a riegeli file that is no chunked proto, and `CorruptModel` for a text that does not parse.
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
    """Index a decoded file; the index is `terms.index` where that is given."""
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
    return Indexed(name, why, flat, made, sources, image)


def _check_floor(floor: int, size: int) -> None:
    least = SMALLEST_FLOOR if size > _SMALL_PROTO else 1
    if not least <= floor < 1 << 63:
        raise InvalidInput(f"the floor is {floor}: for a proto of {size} bytes it is at least {least}")


def _told(chunked: _core.Chunked, sources: Sequence[RangeSource], filename: str | None) -> tuple[str | None, str]:
    """The type of a chunked proto's root, with the reason: its manifest, its root chunk or a trial merge tells it."""
    if chunked.declared is not None:
        return chunked.declared, "the manifest of the split proto names it"
    found = _look(chunked.root(), sources, filename)
    if found.type_name is not None:
        return found.type_name, found.why
    # Without what was taken out of it, the rest of a message may look like anything. Merged as the right type it will
    # look like that type; as any other one its chunks have no place.
    types = schema.bundled()
    for name in schema.candidates():
        try:
            image = chunked.image(types.flat(name), name, sources)
        except OF_MODELS:
            continue
        if _look(image, sources, filename).type_name == name:
            return name, f"merged as {name}, its fields are those of one"
    return None, found.why


def _look(rope: _core.Rope, sources: Sequence[RangeSource], filename: str | None) -> schema.Detection:
    head = Rope(rope.slice(0, HEAD), sources).read()
    return schema.detect_message(head, filename)

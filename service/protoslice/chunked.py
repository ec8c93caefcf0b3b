"""Which message a chunked proto holds: its chunks alone, or what they come to, tell its type."""

from __future__ import annotations

from collections.abc import Sequence

from protoslice import _core, schema
from protoslice.errors import OF_MODELS
from protoslice.ropes import Rope
from protoslice.schema.detection.detect import HEAD
from protoslice.sources import RangeSource

__all__ = ["tell_type"]


def tell_type(chunked: _core.Chunked, sources: Sequence[RangeSource], filename: str | None) -> tuple[str | None, str]:
    """The type of the root message, and what tells it: the file, its own chunks or a trial merge; none when none do."""
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

"""A check of whether TensorFlow's Merger can read a split message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from protoslice.splitting.fields import INT_32, Shape, complete_when_empty, field_by_number, shape
from protoslice.splitting.paths import Key, Path, Step, show

_Field = FieldDescriptor
_KEYS = {
    _Field.TYPE_STRING: "s",
    _Field.TYPE_BOOL: "boolean",
    _Field.TYPE_INT32: "i32",
    _Field.TYPE_INT64: "i64",
    _Field.TYPE_UINT32: "ui32",
    _Field.TYPE_UINT64: "ui64",
}
_LONGEST = (1 << 31) - 1


def tensorflow_readable(metadata: Any, descriptor: Descriptor) -> list[str]:
    """Return the reasons why TensorFlow's Merger would misread a chunked message of the type `descriptor`.

    The result is empty if the Merger reads the message correctly. `metadata` is a `ChunkMetadata` or a
    `ChunkedMessage`. An index after the last element is not detected, because elements are not counted.
    """
    if metadata.DESCRIPTOR.name != "ChunkMetadata":
        return list(_message(metadata, descriptor, (), None))
    reasons = []
    if metadata.version.join_version:
        reasons.append(f"join_version is {metadata.version.join_version}, where TensorFlow writes 0")
    sizes = [chunk.size for chunk in metadata.chunks]
    reasons += [f"chunk {i} has {size} bytes, over {_LONGEST}" for i, size in enumerate(sizes) if size > _LONGEST]
    return reasons + list(_message(metadata.message, descriptor, (), len(sizes)))


def _message(message: Any, descriptor: Descriptor, path: Path, chunks: int | None) -> Iterator[str]:
    yield from _chunk(message, path, chunks)
    places = []
    for field in message.chunked_fields:
        if not field.field_tag:
            yield from _own_part(field.message, descriptor, path, chunks)
            continue
        steps, reason = _steps(descriptor, field.field_tag)
        places.append((steps, _positions(steps)))
        if reason is not None:
            yield f"{show((*path, *steps)) or 'the message'}: {reason}"
        else:
            yield from _field(field.message, steps, path, chunks)
    yield from _order(places, path)


def _chunk(message: Any, path: Path, chunks: int | None) -> Iterator[str]:
    if chunks is not None and message.HasField("chunk_index") and message.chunk_index >= chunks:
        yield f"{show(path) or 'the message'}: chunk {message.chunk_index} does not exist"


def _own_part(message: Any, descriptor: Descriptor, path: Path, chunks: int | None) -> Iterator[str]:
    where = show(path) or "the message"
    yield from _chunk(message, path, chunks)
    if not message.HasField("chunk_index"):
        yield f"{where}: this part names no chunk, so TensorFlow would read chunk 0"
    if not complete_when_empty(descriptor):
        yield f"{where}: TensorFlow cannot parse a part of a message type with required fields"
    if message.chunked_fields:
        yield f"{where}: TensorFlow ignores chunks nested in a part that has no field tag"


def _field(message: Any, steps: Path, path: Path, chunks: int | None) -> Iterator[str]:
    inside = steps[-1].ends_in_message
    whole = (*path, *steps)
    if inside is not None:
        yield from _message(message, inside, whole, chunks)
        return
    yield from _chunk(message, whole, chunks)
    last = steps[-1].field
    if not message.HasField("chunk_index"):
        yield f"{show(whole)}: this value names no chunk, so TensorFlow would read chunk 0"
    if last.key is not None:
        yield f"{show(whole)}: TensorFlow crashes on a map value that is not a message"
    elif last.repeated:
        yield f"{show(whole)}: TensorFlow crashes on repeated elements that are not messages"
    elif not last.text:
        yield (
            f"{show(whole)}: TensorFlow reads the chunk of a number as text, and crashes if the number is out of range"
        )


def _steps(descriptor: Descriptor, tags: Sequence[Any]) -> tuple[Path, str | None]:
    """Return the valid first part of the path that `tags` name, and the problem of the next tag or None."""
    steps: list[Step] = []
    parent: Descriptor | None = descriptor
    rest = list(tags)
    while rest:
        tag = rest.pop(0)
        found = field_by_number(parent, tag.field) if parent is not None and tag.HasField("field") else None
        if found is None:
            return tuple(steps), "the field tags do not match any field"
        each = shape(found)
        at, reason = _at(each, rest)
        steps.append(Step(each, at))
        if reason is not None or (reason := _refused(steps, bool(rest))) is not None:
            return tuple(steps), reason
        parent = steps[-1].ends_in_message
    return tuple(steps), None


def _at(each: Shape, rest: list[Any]) -> tuple[Key | None, str | None]:
    kind = rest[0].WhichOneof("kind") if rest else None
    if each.key is not None:
        if kind != "map_key":
            return None, "TensorFlow crashes on a map field whose tags have no key"
        return _key(each.key, rest.pop(0).map_key)
    if each.repeated and kind == "index":
        return rest.pop(0).index, None
    if each.repeated and each.message:
        return None, "TensorFlow crashes on a repeated message field whose tags have no index"
    return None, "TensorFlow crashes on an index or key of a singular field" if kind in ("index", "map_key") else None


def _key(key: Shape, tag: Any) -> tuple[Key | None, str | None]:
    kind = tag.WhichOneof("type")
    value: Any = None if kind is None else getattr(tag, kind)
    if kind is None or _KEYS.get(key.type) != kind:
        return value, "the key's type is not that of the map"
    wide = kind in ("i64", "ui64") and value not in INT_32
    return value, "TensorFlow truncates map keys to 32 bits" if wide else None


def _refused(steps: Sequence[Step], more: bool) -> str | None:
    if steps[-1].field.type == _Field.TYPE_GROUP:
        return "TensorFlow does not look into groups"
    if not more and steps[-1].field.descriptor.is_required:
        return "TensorFlow does not parse a chunk that lacks a required field"
    return None


def _positions(steps: Path) -> tuple[Any, ...]:
    return tuple((step.field.number, step.at) for step in steps)


def _order(places: Sequence[tuple[Path, tuple[Any, ...]]], path: Path) -> Iterator[str]:
    """Yield the problems of order. TensorFlow may merge a chunk below a map key before the chunk that contains it."""
    taken = {positions for _, positions in places}
    for steps, positions in places:
        for end in range(1, len(positions)):
            if positions[:end] in taken and any(step.field.key is not None for step in steps[:end]):
                yield (
                    f"{show((*path, *steps))}: this chunk is below a map key, and TensorFlow may merge it before the "
                    "chunk that contains it"
                )

"""Paths in a message, in three forms: lists as in TensorFlow's guide, tags of metadata, and readable text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from protoslice import schema
from protoslice.errors import InvalidInput
from protoslice.splitting.fields import INT_32, INT_64, UINT_32, UINT_64, WHOLE, Shape, field_by_number, shape


@cache
def _class(name: str) -> Any:
    return schema.bundled().message_class(f"tensorflow.proto_splitter.{name}")


def chunk_metadata() -> Any:
    """Return a new `ChunkMetadata`."""
    return _class("ChunkMetadata")()


def chunked_message() -> Any:
    """Return a new `ChunkedMessage`."""
    return _class("ChunkedMessage")()


def field_index() -> Any:
    """Return a new `FieldIndex`."""
    return _class("FieldIndex")()


def version_def() -> Any:
    """Return a new `VersionDef` with the versions that TensorFlow's Python splitters write."""
    return _class("VersionDef")(splitter_version=1, join_version=0)


Key: TypeAlias = str | int | bool
Fields: TypeAlias = Key | Sequence[Key]
"""A path as in TensorFlow's guide: field names or numbers, each of which an index or map key may follow."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a path: a field, and the index or map key of one element. `at` is None for the whole field."""

    field: Shape
    at: Key | None = None

    @property
    def ends_in_message(self) -> Descriptor | None:
        """The type of the message at this step; None if the step does not lead to a single message."""
        if self.field.key is not None:
            value = self.field.map_value.descriptor
            return None if self.at is None else value.message_type
        return None if self.field.repeated and self.at is None else self.field.descriptor.message_type

    def __str__(self) -> str:
        if self.at is None:
            return self.field.name
        return f"{self.field.name}[{json.dumps(self.at, ensure_ascii=False)}]"


Path: TypeAlias = tuple[Step, ...]

_Field = FieldDescriptor
_WHOLE_KEYS = {INT_32: "i32", INT_64: "i64", UINT_32: "ui32", UINT_64: "ui64"}
_KEYS = {_Field.TYPE_STRING: "s", _Field.TYPE_BOOL: "boolean"} | {
    kind: _WHOLE_KEYS[numbers] for kind, numbers in WHOLE.items()
}
"""The field of `MapKey` that holds a key, by the type of the key."""


def show(path: Iterable[Step]) -> str:
    """Return the readable form of a path, such as `graph_def.node[3].attr["value"]`."""
    return ".".join(map(str, path))


def listed(fields: Fields) -> list[Key]:
    """Return `fields` as a list. A single name or number becomes a list with one item."""
    return [fields] if isinstance(fields, str | int) else list(fields)


def path_of(descriptor: Descriptor, fields: Fields) -> Path:
    """Return the path that `fields` names in a message of the type `descriptor`.

    Raise `InvalidInput` if the type has no such path.
    """
    parts = iter(listed(fields))
    path: list[Step] = []
    parent: Descriptor | None = descriptor
    for part in parts:
        if parent is None:
            raise InvalidInput(f"{part!r} cannot be found: its parent has no fields", path=show(path) or None)
        field = _named(parent, part, path)
        step = Step(field, _position(field, parts, path))
        path.append(step)
        parent = step.ends_in_message
    return tuple(path)


def _named(parent: Descriptor, part: Key, path: Sequence[Step]) -> Shape:
    if isinstance(part, bool) or not isinstance(part, str | int):
        raise InvalidInput(f"Expected a field name or number, not {part!r}", path=show(path) or None)
    by_name = parent.fields_by_name.get(part) if isinstance(part, str) else None
    found = by_name or (field_by_number(parent, part) if isinstance(part, int) else None)
    if found is None:
        raise InvalidInput(f"{parent.full_name} has no field {part!r}", path=show(path) or None)
    return shape(found)


def _position(field: Shape, parts: Iterator[Key], path: Sequence[Step]) -> Key | None:
    if not field.repeated or (at := next(parts, None)) is None:
        return None
    return _key(field, at, path) if field.key is not None else _index(field, at, path)


def _index(field: Shape, at: Key, path: Sequence[Step]) -> int:
    if isinstance(at, bool) or not isinstance(at, int) or at not in UINT_64:
        raise InvalidInput(f"{at!r} is not an element index", path=show([*path, Step(field)]))
    return at


def _key(field: Shape, at: Key, path: Sequence[Step]) -> Key:
    kind = field.map_key.type
    if kind == _Field.TYPE_STRING:
        fits = isinstance(at, str)
    elif kind == _Field.TYPE_BOOL:
        fits = isinstance(at, bool)
    else:
        fits = isinstance(at, int) and not isinstance(at, bool) and at in WHOLE[kind]
    if not fits:
        raise InvalidInput(f"{at!r} is not a key of this map", path=show([*path, Step(field)]))
    return at


def tags_of(path: Iterable[Step]) -> list[Any]:
    """Return the `FieldIndex` messages that encode `path` in metadata."""
    tags = []
    for step in path:
        tags.append(_tag("field", step.field.number))
        if step.at is None:
            continue
        if step.field.key is None:
            tags.append(_tag("index", step.at))
        else:
            tags.append(_key_tag(step.field.key, step.at))
    return tags


def _tag(kind: str, value: Key) -> Any:
    tag = field_index()
    setattr(tag, kind, value)
    return tag


def _key_tag(key: Shape, value: Key) -> Any:
    tag = field_index()
    setattr(tag.map_key, _KEYS[key.type], value)
    return tag


def value_at(message: Message, path: Iterable[Step]) -> Any:
    """Return the value at `path` in `message`; None if a step is absent. The message does not change."""
    value: Any = message
    for step in path:
        if value is None:
            return None
        value = _child(value, step)
    return value


def _child(message: Message, step: Step) -> Any:
    field = step.field
    if not field.repeated:
        absent = field.message and not message.HasField(field.name)
        return None if absent else field.of(message)
    values = field.of(message)
    if step.at is None:
        return values
    if field.key is not None:
        return values.get(step.at)
    return values[step.at] if 0 <= int(step.at) < len(values) else None


_NOT_NUMBERS: Final = frozenset({_Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_MESSAGE, _Field.TYPE_GROUP})
_NUMBER: Final = re.compile(rb"\s*[+-]?(?:\.?[0-9]|inf|nan)[\x20-\x7e]*", re.IGNORECASE)
_WORD: Final = re.compile(rb"[A-Za-z_0-9-]+")


def check_text(path: Path, chunk: bytes) -> None:
    """Raise `InvalidInput` if `path` leads to a number, but `chunk` is not the text of a number."""
    value = _value(path)
    if value is None or value.type in _NOT_NUMBERS:
        return
    if not (_WORD if value.type in {_Field.TYPE_BOOL, _Field.TYPE_ENUM} else _NUMBER).fullmatch(chunk):
        raise InvalidInput(
            "The chunk of a numeric field must be its value as text, such as b'0.5', b'true' or an enum "
            f"value's name; these {len(chunk)} bytes are not. For a NumPy array, pass str(value).encode() for "
            "each value instead of tobytes()",
            path=show(path),
        )


def _value(path: Path) -> Shape | None:
    """Return the field whose value a chunk at `path` contains; None for the root message."""
    if not path:
        return None
    last = path[-1].field
    return last if last.key is None else last.map_value

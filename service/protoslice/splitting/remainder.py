"""The remainder of a message while parts of the message become chunks. Omitted parts are never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protoslice import varints
from protoslice.errors import InvalidInput
from protoslice.splitting.fields import Shape, present
from protoslice.splitting.paths import Key, Path, Step, show, value_at

Chunk: TypeAlias = Message | bytes


@dataclass(frozen=True, slots=True)
class LazyChunk:
    """A chunk that `build` makes on demand. `size` is its size in bytes; None if it is not known in advance."""

    build: Callable[[], Chunk]
    size: int | None = None


def existing_chunk(chunk: Chunk) -> LazyChunk:
    """Return a `LazyChunk` for a chunk that exists already."""
    size = None if isinstance(chunk, Message) else len(chunk)
    return LazyChunk(lambda: chunk, size)


class Remainder:
    """The remaining message. It is the source with a set of omissions, or a copy once `editable` was accessed."""

    def __init__(self, source: Message) -> None:
        self._source = source
        self._omissions = Omissions()
        self._copy: Message | None = None

    @property
    def editable(self) -> Message:
        """An editable copy of the remaining message. The first access makes the copy."""
        if self._copy is None:
            self._copy = stripped(self._source, self._omissions)
        return self._copy

    @property
    def readable(self) -> Message:
        """The copy if it exists, or else the whole source. Callers must not change it."""
        return self._source if self._copy is None else self._copy

    def base(self, size: int | None = None) -> LazyChunk:
        """Return the chunk of the remaining message."""
        if self._copy is not None:
            return existing_chunk(self._copy)
        if self._omissions == Omissions():
            return LazyChunk(lambda: self._source, size)
        return LazyChunk(lambda: stripped(self._source, self._omissions), size)

    def take(self, path: Path, size: int | None = None) -> LazyChunk:
        """Remove and return the part at `path`, a message or the bytes of a string or bytes field.

        Raise `InvalidInput` if there is no value at `path`.
        """
        if self._copy is not None:
            return self._cut_out(self._copy, path)
        value = _there(self._source, path)
        inside = self._omissions.detach(path)
        if isinstance(value, Message):
            whole = inside == Omissions()
            return LazyChunk(lambda: value if whole else stripped(value, inside), size)
        return LazyChunk(lambda: _bytes(value_at(self._source, path)), size)

    def take_run(self, path: Path, each: Shape, keys: Sequence[Key], size: int | None = None) -> LazyChunk:
        """Remove and return the items `keys` of the field `each` in the message at `path`.

        `keys` are indices of elements, or keys of map entries. No elements may remain after the last of the indices.
        """
        message = _there(self.readable, path)
        below = self._omissions.at(path).fields
        omissions = below.setdefault(each.number, FieldOmissions())
        if self._copy is not None:
            chunk = sliced(message, each, keys, FieldOmissions())
            _remove(message, each, keys)
            return LazyChunk(lambda: chunk, size)
        if isinstance(keys, range):
            omissions.keep = keys.start if omissions.keep is None else min(keys.start, omissions.keep)
        else:
            omissions.gone.update(keys)
        return LazyChunk(lambda: sliced(message, each, keys, omissions), size)

    def _cut_out(self, copy: Message, path: Path) -> LazyChunk:
        value = _there(copy, path)
        if not isinstance(value, Message):
            drop(value_at(copy, path[:-1]), path[-1])
            return existing_chunk(_bytes(value))
        chunk = type(value)()
        chunk.MergeFrom(value)
        value.Clear()
        return existing_chunk(chunk)


def _there(message: Message, path: Path) -> Any:
    if (value := value_at(message, path)) is None:
        raise InvalidInput("The message has no value at this path that could become a chunk", path=show(path))
    return value


def _remove(message: Message, each: Shape, keys: Sequence[Key]) -> None:
    values = each.of(message)
    if isinstance(keys, range):
        del values[keys.start : keys.stop]
        return
    for key in keys:
        del values[key]


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Omissions:
    """The parts to omit from a message: the whole message, or parts of its fields by field number."""

    all: bool = False
    fields: dict[int, FieldOmissions] = field(default_factory=dict)

    def at(self, path: Path) -> Omissions:
        """Return the omissions of the message at `path`. They are created if they do not exist."""
        node = self
        for step in path:
            below = node.fields.setdefault(step.field.number, FieldOmissions())
            node = below.at.setdefault(step.at, Omissions())
        return node

    def detach(self, path: Path) -> Omissions:
        """Omit the whole message at `path`, and return the omissions that it had before."""
        if not path:
            inside = Omissions(fields=self.fields)
            self.all, self.fields = True, {}
            return inside
        parent, last = self.at(path[:-1]), path[-1]
        below = parent.fields.setdefault(last.field.number, FieldOmissions())
        inside = below.at.pop(last.at, Omissions())
        if last.at is None:
            below.whole = True
        else:
            below.at[last.at] = Omissions(all=True)
        return inside


@dataclass(slots=True)
class FieldOmissions:
    """The parts to omit from a field.

    `whole` omits the whole field. `keep` is the index from which elements are omitted; None omits no elements. `gone`
    has the keys of omitted map entries. `at` has the omissions in the field's messages by index or map key. For a
    singular field, its only key is None.
    """

    whole: bool = False
    keep: int | None = None
    gone: set[Key] = field(default_factory=set)
    at: dict[Key | None, Omissions] = field(default_factory=dict)


def stripped(source: M, omissions: Omissions) -> M:
    """Return a copy of `source` without `omissions`."""
    target = type(source)()
    strip_into(target, source, omissions)
    return target


def strip_into(target: Message, source: Message, omissions: Omissions) -> None:
    """Copy `source` without `omissions` into the empty `target`."""
    if omissions.all:
        return
    for each, value in present(source):
        if (below := omissions.fields.get(each.number)) is None or each.descriptor.is_extension:
            _copy(target, each, value)
        elif not below.whole:
            _copy_partly(target, each, value, below)
    copy_unknown(target, source)


def sliced(source: M, each: Shape, keys: Iterable[Key], omissions: FieldOmissions) -> M:
    """Return a message of the type of `source` that contains only the items `keys` of one field.

    `omissions` are left out of these elements or map entries.
    """
    target = type(source)()
    values = each.of(source)
    if each.message or each.key is not None:
        _copy_items(target, each, values, keys, omissions)
    elif isinstance(keys, range):
        each.of(target).extend(values[keys.start : keys.stop])
    return target


def _copy(target: Message, each: Shape, value: Any) -> None:
    if each.repeated:
        each.of(target).MergeFrom(value)
    elif each.message:
        inside = each.of(target)
        inside.SetInParent()
        inside.MergeFrom(value)
    elif each.descriptor.is_extension:
        target.Extensions[cast(Any, each.descriptor)] = value
    else:
        setattr(target, each.name, value)


def _copy_partly(target: Message, each: Shape, value: Any, omissions: FieldOmissions) -> None:
    if not each.repeated:
        inside = each.of(target)
        inside.SetInParent()
        strip_into(inside, value, omissions.at.get(None) or Omissions())
    elif each.key is not None:
        _copy_items(target, each, value, (key for key in value if key not in omissions.gone), omissions)
    else:
        keep = len(value) if omissions.keep is None else omissions.keep
        if each.message:
            _copy_items(target, each, value, range(keep), omissions)
        else:
            each.of(target).extend(value[:keep])


def _copy_items(target: Message, each: Shape, values: Any, keys: Iterable[Any], omissions: FieldOmissions) -> None:
    copies = each.of(target)
    if each.key is not None and not each.map_value.message:
        for key in keys:
            copies[key] = values[key]
        return
    for key in keys:
        copy = copies.add() if each.key is None else copies[key]
        if (below := omissions.at.get(key)) is None:
            copy.MergeFrom(values[key])
        else:
            strip_into(copy, values[key], below)


def drop(message: Message, last: Step) -> None:
    """Clear the field of the step `last`, or only one element or map value if the step names one."""
    if last.at is None:
        message.ClearField(last.field.name)
    else:
        last.field.of(message)[last.at].Clear()


_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)


def copy_unknown(target: Message, source: Message) -> None:
    """Add the unknown fields of `source` to `target`. Unknown fields of submessages are not added."""
    fields = UnknownFieldSet(source)
    if len(fields):
        target.MergeFromString(_encode(fields))


def _encode(fields: UnknownFieldSet) -> bytes:
    return b"".join(_one(field.field_number, field.wire_type, field.data) for field in cast(Any, fields))


def _one(number: int, wire_type: int, data: Any) -> bytes:
    tag = varints.write(number << 3 | wire_type)
    if wire_type == _VARINT:
        return tag + varints.write(data)
    if wire_type == _DELIMITED:
        return tag + varints.write(len(data)) + bytes(data)
    if wire_type == _GROUP:
        return tag + _encode(data) + varints.write(number << 3 | _END_GROUP)
    return tag + int(data).to_bytes(4 if wire_type == _FIXED32 else 8, "little")

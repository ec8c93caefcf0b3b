"""A slow and simple walker over wire bytes whose types are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tests.support.protos.writer import is_packable, varint, wire_of


@dataclass(frozen=True, slots=True)
class Field:
    """One field on the wire, with its tag's bytes, its content, and all its bytes."""

    number: int
    wire: int
    tag: bytes
    content: bytes
    whole: bytes

    def child(self, parent: Descriptor | None) -> Descriptor | None:
        """Return the message type of the field's content, if `parent` declares one."""
        known = self.known(parent)
        return known.message_type if known is not None else None

    def known(self, parent: Descriptor | None) -> FieldDescriptor | None:
        """Return the field's declaration in `parent`; None if no declaration fits the wire type."""
        known = parent.fields_by_number.get(self.number) if parent is not None else None
        if known is None:
            return None
        fits = wire_of(known.type) == self.wire or (self.wire == 2 and known.is_repeated and is_packable(known))
        return known if fits else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order; the bytes must be valid."""
    at = 0
    while at < len(data):
        field = _field(data, at)
        yield field
        at += len(field.whole)


def _field(data: bytes, at: int) -> Field:
    head, after = _varint(data, at)
    number, wire = head >> 3, head & 7
    begin = after
    if wire == 0:
        _, end = _varint(data, after)
    elif wire == 2:
        length, begin = _varint(data, after)
        end = begin + length
    elif wire == 3:
        return _group(data, at, after)
    else:
        end = after + (8 if wire == 1 else 4)
    return Field(number, wire, data[at:after], data[begin:end], data[at:end])


def _group(data: bytes, at: int, begin: int) -> Field:
    end = begin
    while True:
        head, after = _varint(data, end)
        if head & 7 == 4:
            return Field(head >> 3, 3, data[at:begin], data[begin:end], data[at:after])
        end += len(_field(data, end).whole)


def tokens(data: bytes, descriptor: Descriptor | None) -> list[bytes]:
    """Take a message apart into tokens: each message's tag and end, and all bytes of each other field."""
    out: list[bytes] = []
    for field in fields(data):
        child = field.child(descriptor)
        if child is None and field.wire != 3:
            out.append(field.whole)
        else:
            out += [b"<" + field.tag, *tokens(field.content, child), b">"]
    return out


def is_subsequence(some: list[bytes], of: list[bytes]) -> bool:
    """Return True if `some` occur in `of` in the same order."""
    rest = iter(of)
    return all(token in rest for token in some)


def without_large(data: bytes, descriptor: Descriptor | None, limit: int) -> bytes:
    """Return the merged message without bytes, strings and packed fields above `limit`; map keys are kept."""
    in_map = descriptor is not None and descriptor.has_options and descriptor.GetOptions().map_entry
    out = []
    for field in _merged(data, descriptor):
        known, child = field.known(descriptor), field.child(descriptor)
        is_key = in_map and field.number == 1
        if child is not None or field.wire == 3:
            out.append(_rewrapped(field, without_large(field.content, child, limit)))
        elif field.wire != 2 or len(field.content) <= limit or (is_key and known is not None):
            out.append(field.whole)
    return b"".join(out)


def _merged(data: bytes, descriptor: Descriptor | None) -> list[Field]:
    """Return a message's fields. Only the last value of a singular field or oneof is kept; messages are merged."""
    out: list[Field] = []
    for field in fields(data):
        known = field.known(descriptor)
        if known is not None and not known.is_repeated:
            others = [other for other in out if _slot(other.known(descriptor)) == _slot(known)]
            out = [other for other in out if other not in others]
            if known.message_type is not None and others and others[-1].number == field.number:
                field = _field(_rewrapped(field, others[-1].content + field.content), 0)
        out.append(field)
    return out


def _slot(known: FieldDescriptor | None) -> object:
    """Return the slot that holds one value at a time: a oneof's name or a field's number.

    Return None for repeated fields.
    """
    if known is None or known.is_repeated:
        return None
    return known.number if known.containing_oneof is None else known.containing_oneof.name


def _rewrapped(field: Field, content: bytes) -> bytes:
    if content == field.content:
        return field.whole
    if field.wire == 3:
        return field.tag + content + field.whole[len(field.tag) + len(field.content) :]
    if len(content) == len(field.content):
        return field.whole[: -len(content)] + content if content else field.whole
    return field.tag + varint(len(content)) + content

"""The fallback format: it lists the large bytes and numeric fields of any typed message as one-dimensional tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from protoslice import _core
from protoslice.errors import LimitExceeded, NotFound
from protoslice.formats.messages import Place, TensorBuilder, numbers, places_of
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Encoding, Model, RootProto, Stored, Tensor

_LEAST: Final = 64 << 10
"""The size in bytes from which a field is listed as a tensor."""
_MOST_COUNTED: Final = 64 << 20
_PIECE: Final = 1 << 20
_CONTINUED: Final = bytes(range(0x80, 0x100))

_NUMBERS: Final = {
    "double": ("F64", Encoding.PLAIN), "float": ("F32", Encoding.PLAIN),
    "fixed32": ("U32", Encoding.PLAIN), "fixed64": ("U64", Encoding.PLAIN),
    "sfixed32": ("I32", Encoding.PLAIN), "sfixed64": ("I64", Encoding.PLAIN),
    "int32": ("I32", Encoding.VARINT), "int64": ("I64", Encoding.VARINT),
    "uint32": ("U32", Encoding.VARINT), "uint64": ("U64", Encoding.VARINT),
    "sint32": ("I32", Encoding.ZIGZAG), "sint64": ("I64", Encoding.ZIGZAG),
    "bool": ("BOOL", Encoding.VARINT), "enum": ("I32", Encoding.VARINT),
}  # fmt: skip
"""A map from protobuf's field kinds to the dtype and the encoding of the elements."""


class GenericMessages:
    """The fallback format for messages whose type is known, but which no other format matches."""

    name = "fields"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a proto of a known type."""
        return model.proto is not None and model.type is not None

    def tensors(self, model: Model) -> Tensors:
        """Return all fields of at least 64 KiB, at any depth. The index lists them, so their content is not read."""
        fields = [] if model.proto is None else list(_fields(model.root, model.proto))
        return Tensors(
            len(fields),
            lambda number: fields[number].tensor,
            lambda number: (fields[number].path, f"path:{fields[number].path}"),
        )


@dataclass(frozen=True)
class _Field:
    """A field that is listed as a tensor. Counting its elements may need a pass over its varints."""

    file: str
    proto: RootProto
    path: str
    kind: str
    found: _core.Finding
    number: int

    @cached_property
    def tensor(self) -> Tensor:
        """The field as a tensor. Its data is `Unreadable` if its elements cannot be counted."""
        return TensorBuilder(self.path, self.path, "field", self.file).tensor(self._data)

    def _data(self, builder: TensorBuilder) -> Data:
        if self.kind == "bytes":
            _, _, rope = self.proto.document.view(self.path)
            builder.dtype, builder.shape = DTYPES["U8"], (rope.size,)
            return Stored(Rope(rope, self.proto.sources))
        name, encoding = _NUMBERS[self.kind]
        builder.dtype = DTYPES[name]
        width = builder.dtype.width if encoding is Encoding.PLAIN else None
        builder.shape = (sum(self._count(*place, width) for place in places_of(self.found, self.number)),)
        values = numbers(self.proto, self.found, self.number, encoding)
        return values or Stored(Rope.joined(()))

    def _count(self, _: int, wire: int, start: int, end: int, count: int, width: int | None) -> int:
        if wire != 2:
            return count
        if width is not None:
            return (end - start) // width
        if end - start > _MOST_COUNTED:
            raise LimitExceeded(
                f"The field has {end - start} bytes of varints, too many to count its numbers: at most "
                f"{_MOST_COUNTED} bytes are allowed. Read the bytes of the field instead",
                start,
            )
        rope = Rope(self.proto.document.at(start, end), self.proto.sources)
        return sum(len(bytes(piece).translate(None, _CONTINUED)) for piece in rope.pieces(_PIECE))


def _fields(file: str, proto: RootProto) -> Iterator[_Field]:
    for found in proto.document.find(None, small=0, least=_LEAST):
        for number in dict.fromkeys(number for number, *_ in found.places):
            known = proto.document.field(found.type, number)
            if known is not None:
                name, kind, repeated, in_map = known
                # A map entry and its value share the path `field["key"]`.
                path = found.path if in_map else f"{found.path}.{name}" if found.path else name
                for each in _paths(proto, places_of(found, number), kind, path, repeated):
                    yield _Field(file, proto, each, kind, found, number)


def _paths(proto: RootProto, places: Sequence[Place], kind: str, path: str, repeated: bool) -> Iterator[str]:
    """Yield the paths of the tensors in the field at `path`.

    A numeric field is one tensor. A bytes field is one tensor for each large element.
    """
    size = sum(end - start for _, _, start, end, _ in places)
    if kind in _NUMBERS and repeated and size >= _LEAST:
        yield path
    elif kind == "bytes" and repeated:
        at = 0
        for _, _, start, end, count in places:
            if count == 1 and end - start >= _LEAST:
                yield f"{path}[{at}]"
            at += count
    elif kind == "bytes" and size >= _LEAST and _is_there(proto, path):
        yield path


def _is_there(proto: RootProto, path: str) -> bool:
    """Return True when the field at `path` still has a value, and this value is large."""
    # The index lists every occurrence of every field, but a oneof keeps only the member that was written last.
    try:
        return proto.document.view(path)[2].size >= _LEAST
    except NotFound:
        return False

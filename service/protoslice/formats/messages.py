"""Shared code of protobuf formats: a base class, field readers, a tensor builder, and paths of external files."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from google.protobuf.message import DecodeError, Message

from protoslice import _core, schema, varints
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded, ProtosliceError
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import Dtype, element_count
from protoslice.tensors.layout import checked
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Deferred, Encoding, Model, RootProto, Stored, Tensor, Unreadable, Use


class ProtoFormat(ABC):
    """A base class of formats whose root is a message of one protobuf package."""

    package: ClassVar[str]
    """The prefix of the package's full type names, such as `onnx.`."""

    def matches(self, model: Model) -> bool:
        """Return True when the root is a message of the package."""
        return model.proto is not None and (model.type or "").startswith(self.package)

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of `model`, or none if the root is not a proto."""
        return Tensors.of(()) if model.proto is None else self.tensors_in(model, model.proto)

    @abstractmethod
    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return all tensors of `model`, whose root is `proto`. This call blocks; it reads no elements."""


def resolve_location(root: str, location: str) -> str:
    """Resolve `location`, which is relative to the folder of `root`, to the path of a file in the model.

    Raise `CorruptModel` for a location that names no file, is absolute, or leads out of that folder.
    """
    inside = posixpath.normpath(location)
    if inside == "." or location.endswith("/"):
        raise CorruptModel(f"The location {location!r} of external data is not a file name")
    if location.startswith("/") or inside.partition("/")[0] == ".." or "\\" in location or "\0" in location:
        raise CorruptModel(
            f"The location {location!r} of external data is outside of the model: such files are not read"
        )
    return posixpath.normpath(posixpath.join(posixpath.dirname(root), inside))


_MOST_ENDS: Final = 4 << 20
"""The byte limit for the inputs and outputs of a model or meta graph, which are parsed in memory."""


def parsed(message_class: type[Message], found: _core.Finding) -> Any:
    """Parse the message `found` without its large fields; raise `CorruptModel` if it is not a `message_class`."""
    try:
        return schema.parsed(message_class, found.skeleton)
    except DecodeError as error:
        raise CorruptModel(f"A {found.type} does not parse: {error}", path=found.path) from error


def parsed_ends(proto: RootProto, type_name: str, path: str, fields: Sequence[str], about: str) -> tuple[Any, int]:
    """Return the message at `path` with only the given `fields`, and the size of these fields in bytes.

    `fields` declare inputs and outputs. Raise `LimitExceeded` if they take more than 4 MiB, and `CorruptModel` if
    they do not parse. The errors name the path `about`.
    """
    _, _, core = proto.document.view(path, fields)
    check_ends(core.size, about)
    try:
        message = schema.bundled().message_class(type_name)
        return schema.parsed(message, Rope(core, proto.sources).read()), core.size
    except DecodeError as error:
        raise CorruptModel(f"The inputs and outputs do not parse: {error}", path=about) from error


def check_ends(size: int, about: str = "") -> None:
    """Raise `LimitExceeded` if `size`, the bytes of inputs and outputs, is more than 4 MiB."""
    if size > _MOST_ENDS:
        raise LimitExceeded(
            f"The inputs and outputs have {size} bytes, but at most {_MOST_ENDS} are listed", path=about
        )


@dataclass(slots=True)
class TensorBuilder:
    """The facts known so far about the tensor at `path`."""

    name: str
    path: str
    holder: str
    file: str | None
    dtype: Dtype | None = None
    shape: tuple[int, ...] | None = None
    details: Callable[[], Mapping[str, object]] | None = None
    look: Callable[[Tensor], Use] | None = None

    def tensor(self, find: Callable[[TensorBuilder], Data]) -> Tensor:
        """Return the finished tensor with the data that `find` returns.

        `find` receives this builder and may set its attributes. If `find` raises an error, the data is `Unreadable`.
        """
        try:
            data = find(self)
        except OF_MODELS as error:
            error.path = error.path or self.path
            data = Unreadable(error)
        return self._finished(data)

    def unreadable(self, error: ProtosliceError) -> Tensor:
        """Return the finished tensor with unreadable data, whose reading raises `error`."""
        return self._finished(Unreadable(error))

    def _finished(self, data: Data) -> Tensor:
        return Tensor(
            self.name,
            f"path:{self.path}",
            self.dtype,
            self.shape,
            self.holder,
            self.file,
            data,
            self.details,
            self.look,
        )


Place = tuple[int, int, int, int, int]
"""A place of a field in a proto: field number, wire type, start, end and count.

If the count is 1, start and end enclose the content of one field. Otherwise they enclose a run of equal fields
including their tags.
"""

_LENGTH = 2
_WIDTHS = {1: 8, 5: 4}
_MOST_UNPACKED = 64 << 20
"""The byte limit for unpacked numbers. Each has a tag, so the numbers must be copied into memory without tags."""


def content(proto: RootProto, found: _core.Finding, number: int) -> Rope | None:
    """Return the content of the bytes field `number`; None if it is absent. The last occurrence counts."""
    *_, last = (None, *contents(proto, found, number))
    return last


def contents(proto: RootProto, found: _core.Finding, number: int) -> Iterator[Rope]:
    """Yield the elements of the repeated bytes field `number`."""
    for place in places_of(found, number):
        if place[1] == _LENGTH:
            yield Rope(proto.document.at(place[2], place[3]), proto.sources)


def numbers(
    proto: RootProto, found: _core.Finding, number: int, encoding: Encoding
) -> Stored | Deferred[Stored] | None:
    """Return the values of the numeric field `number`; None if the field is absent.

    The field may be packed, unpacked, or a mix of both. `encoding` is PLAIN for fixed-width fields; for other fields,
    it is the encoding of the varints. Raise `LimitExceeded` for more than 64 MiB of unpacked numbers.
    """
    places = places_of(found, number)
    if not places:
        return None
    if any(count > 1 for *_, count in places):
        return Deferred(lambda: Stored(_joined(proto, places), encoding))
    return Stored(_joined(proto, places), encoding)


def elements(data: Stored | Deferred[Stored] | None, dtype: Dtype, shape: Sequence[int], lack: str = "") -> Data:
    """Return the elements in `data`; raise `CorruptModel` if the size does not match `dtype` and `shape`.

    `data` may be None for a tensor without elements. If other tensors lack data, the error message is `lack`.
    """
    if data is None and lack and element_count(shape):
        raise CorruptModel(lack)
    data = data or Stored(Rope.joined(()))
    return checked(data, dtype, shape) if isinstance(data, Stored) else data


def fixed_count(found: _core.Finding, number: int, width: int) -> int:
    """Return the number of values in the field `number`. Each value takes `width` bytes."""
    places = places_of(found, number)
    return sum(count if count > 1 else (end - start) // width for _, _, start, end, count in places)


def places_of(found: _core.Finding, number: int) -> Sequence[Place]:
    return [place for place in found.places if place[0] == number]


def _joined(proto: RootProto, places: Sequence[Place]) -> Rope:
    unpacked = sum(end - start for _, _, start, end, count in places if count > 1)
    if unpacked > _MOST_UNPACKED:
        raise LimitExceeded(
            f"{unpacked} bytes of unpacked numbers are too many to combine (at most {_MOST_UNPACKED}): "
            "write the model with packed fields",
            places[0][2],
        )
    pieces: list[bytes | _core.Rope] = []
    for _, wire, start, end, count in places:
        rope = proto.document.at(start, end)
        pieces.append(rope if count == 1 else _values(Rope(rope, proto.sources).read(), wire, start))
    return Rope(_core.Rope(pieces), proto.sources)


def _values(run: bytes, wire: int, offset: int) -> bytes:
    """Return the values in a run of fields, without the tags of these fields."""
    values = bytearray()
    at = 0
    while at < len(run):
        at = _after_varint(run, at, offset)
        end = at + _WIDTHS[wire] if wire in _WIDTHS else _after_varint(run, at, offset)
        values += run[at:end]
        at = end
    return bytes(values)


def _after_varint(run: bytes, at: int, offset: int) -> int:
    _, end = varints.read(run, at)
    if end < 0:
        raise CorruptModel("The data ends in the middle of a number", offset + at)
    return end

"""Models and their tensors: the files, the root proto, and the place and encoding of elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from math import prod
from typing import Final, Generic, NamedTuple, TypeVar

from protoslice import _core
from protoslice.detection import Detection, detect, look_at
from protoslice.errors import NotFound, ProtosliceError
from protoslice.facts import Kind, Role
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import Dtype

Found = TypeVar("Found", covariant=True)


@dataclass(frozen=True, slots=True)
class RootProto:
    """The indexed root proto. The ropes of `document` refer to `sources` by number."""

    document: _core.Document
    sources: Sequence[RangeSource]


class MissingFile(NotFound):
    """The error for a missing file that the model refers to."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file = file


@dataclass(frozen=True)
class Model:
    """A model: its root and its other files."""

    root: str
    type: str | None
    """The message type of the root proto, or of the records in a TFRecord file; None if unknown."""
    files: Mapping[str, RangeSource]
    proto: RootProto | None
    """The root proto; None for a root of another kind, such as a bundle's index or a JSON program."""
    detected: Detection | None = None
    """The kind and type of the root, if the caller has detected them; otherwise None."""

    @cached_property
    def detection(self) -> Detection:
        """The kind and type of the root. Unless the caller has detected them, access reads the root's first bytes."""
        if self.detected is not None:
            return self.detected
        source = self.files.get(self.root)
        return detect(b"") if source is None else look_at(source, self.root)

    def file(self, path: str) -> RangeSource:
        """Return the file at `path`, which the model refers to; raise `MissingFile` if it is absent."""
        try:
            return self.files[path]
        except KeyError as error:
            raise MissingFile(f"The model refers to the file {path!r}, which is not among its files", path) from error

    beside = file
    """The former name of `file`, which formats of other packages may use until 0.3."""


class Encoding(Enum):
    """The encoding of a tensor's elements as bytes."""

    PLAIN = auto()
    """Row-major, little-endian elements. Each element narrower than a byte takes a byte, sign-extended if it is signed.
    """
    BYTE_PER_ELEMENT = auto()
    """Like PLAIN, but the upper bits of elements narrower than a byte are undefined."""
    BIG_ENDIAN = auto()
    """Like PLAIN, but each element has its bytes in reverse order. For complex numbers, each half is reversed."""
    PACKED = auto()
    """A bit stream. The first element is in the lowest bits of the first byte."""
    VARINT = auto()
    """Varints in two's complement, as in a packed field. Excess upper bits are dropped."""
    ZIGZAG = auto()
    """Zigzag varints, as in sint32 and sint64 fields."""
    PACKED_VARINT = auto()
    """Varints, each of which holds one byte of the PACKED form."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All elements of a tensor in one contiguous rope."""

    bytes: Rope
    encoding: Encoding = Encoding.PLAIN
    compare: Callable[[], None] | None = None
    """A function that reads all elements, and raises `CorruptModel` if they do not match the model's checksum.

    It is None if the model has no checksum for these elements.
    """


@dataclass(frozen=True, slots=True)
class Filled:
    """The first elements of a tensor. The last of them is repeated to the end; without any, all elements are zero."""

    first: Stored


@dataclass(frozen=True, slots=True)
class Strided:
    """All elements in an order other than row-major. `strides` has a stride per dimension, counted in elements."""

    stored: Stored
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangular part of a tensor: its first index and length in each dimension, and its elements."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    stored: Stored


@dataclass(frozen=True, slots=True)
class Tiled:
    """Elements in tiles, which cover the tensor without overlap."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Deferred(Generic[Found]):
    """Elements at an unknown location. Calling `locate` reads metadata and returns the elements with their location."""

    locate: Callable[[], Found]


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings, which vary in length. Calling `read` reads all of them."""

    read: Callable[[], Sequence[bytes]]
    claimed: int = 0
    """The number of bytes of a data file that `read` reads; 0 for strings within the root proto."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The error that makes a tensor's elements unreadable."""

    error: ProtosliceError


Data = Stored | Filled | Strided | Tiled | Deferred[Stored | Filled | Strided] | Strings | Unreadable


class Use(NamedTuple):
    """The role of a tensor, and the kind of layer that uses the tensor."""

    role: Role
    kind: Kind


_UNKNOWN: Final = Use("other", "other")


@dataclass(frozen=True, slots=True, repr=False)
class Tensor:
    """A tensor: its metadata, and the location of its elements."""

    name: str
    """The name in the model. Several tensors may share a name."""
    address: str
    """The address, which is unique in the model, such as `bundle:KEY` or `path:PATH` with a path in the root proto."""
    dtype: Dtype | None
    """The dtype. It is None if the model names an unknown type; `data` is then `Unreadable`."""
    shape: tuple[int, ...] | None
    """The length of each dimension; None if the model has no valid shape."""
    holder: str
    """The part of the format that holds the tensor: `initializer`, `constant`, `variable`, `parameter`, `weight` …"""
    file: str | None
    """The path of the file with the elements; None if no file or several files hold them."""
    data: Data
    details: Callable[[], Mapping[str, object]] | None = None
    """A function that reads further facts as JSON, such as levels of detail or the entry in a bundle."""
    look: Callable[[Tensor], Use] | None = None
    """A function that returns the role and kind of the tensor; None if they are unknown."""

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None for an unknown shape."""
        return None if self.shape is None else len(self.shape)

    @property
    def use(self) -> Use:
        """The role and kind of the tensor. They follow from the model's graph if it has one, else from the name."""
        return _UNKNOWN if self.look is None else self.look(self)

    def used(self, look: Callable[[Tensor], Use]) -> Tensor:
        """Return a copy with `look`. This takes a third of the time of `dataclasses.replace`."""
        return Tensor(
            self.name,
            self.address,
            self.dtype,
            self.shape,
            self.holder,
            self.file,
            self.data,
            self.details,
            look,
        )

    def __repr__(self) -> str:
        dtype = self.dtype.name if self.dtype is not None else "unknown type"
        return f"<Tensor {self.name or self.address!r}: {dtype}, shape {self.shape}>"

    @property
    def size(self) -> int | None:
        """The size in bytes of all elements in PLAIN encoding; None for strings and for unknown dtypes or shapes."""
        if self.dtype is None or self.shape is None or not self.dtype.bits:
            return None
        elements, size = self.dtype.block or (1, self.dtype.width)
        return prod(self.shape) // elements * size

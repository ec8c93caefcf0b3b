"""Models and their tensors: files, the root proto among them, and where and how elements are stored."""

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
    """The root proto as indexed by the engine; ropes of `document` refer to `sources`."""

    document: _core.Document
    sources: Sequence[RangeSource]


class MissingFile(NotFound):
    """Raised when a file that the model refers to is missing."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file = file


@dataclass(frozen=True)
class Model:
    """The files of a model, by path."""

    root: str
    type: str | None
    """Message type of the root proto, or of the records in a TFRecord file; None if unknown."""
    files: Mapping[str, RangeSource]
    proto: RootProto | None
    """Root proto; None for a root of another kind, such as the index of a bundle or a program in JSON."""
    detected: Detection | None = None
    """Kind and type of the root; None where they have not been detected."""

    @cached_property
    def detection(self) -> Detection:
        """Kind and type of the root; its first bytes are read unless they have been detected."""
        if self.detected is not None:
            return self.detected
        source = self.files.get(self.root)
        return detect(b"") if source is None else look_at(source, self.root)

    def file(self, path: str) -> RangeSource:
        """Return the file at `path`, to which the model refers; raise `MissingFile` if absent."""
        try:
            return self.files[path]
        except KeyError as error:
            raise MissingFile(f"The model refers to the file {path!r}, which is not among its files", path) from error

    beside = file
    """Its name in formats of other packages, until 0.3."""


class Encoding(Enum):
    """Representation of a tensor's elements in its bytes."""

    PLAIN = auto()
    """Row-major, little-endian; types narrower than a byte take one byte each, signed ones sign-extended."""
    BYTE_PER_ELEMENT = auto()
    """As PLAIN, but the upper bits of types narrower than a byte are undefined."""
    BIG_ENDIAN = auto()
    """As PLAIN, with the bytes of each element (of each half of a complex one) in reverse order."""
    PACKED = auto()
    """A bit stream: the first element in the lowest bits of the first byte."""
    VARINT = auto()
    """Varints in two's complement, as in a packed field; excess upper bits are dropped."""
    ZIGZAG = auto()
    """Zigzag varints, as in sint32 and sint64 fields."""
    PACKED_VARINT = auto()
    """Varints, each of which holds one byte of the PACKED form."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All elements, contiguous."""

    bytes: Rope
    encoding: Encoding = Encoding.PLAIN
    compare: Callable[[], None] | None = None
    """Reads all elements, `CorruptModel` if the model's checksum differs; None for a model without one."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The first elements, the last of which is repeated to the end of the tensor; zeros if there are none."""

    first: Stored


@dataclass(frozen=True, slots=True)
class Strided:
    """All elements, in an order other than row-major; `strides` per dimension, in elements."""

    stored: Stored
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A box of a tensor: its first index and its length in each dimension, and its elements."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    stored: Stored


@dataclass(frozen=True, slots=True)
class Tiled:
    """A tensor in boxes that cover it without overlap."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Deferred(Generic[Found]):
    """Elements whose location is known only after `locate` has read something."""

    locate: Callable[[], Found]


@dataclass(frozen=True, slots=True)
class Strings:
    """Elements of varying length; `read` reads all of them."""

    read: Callable[[], Sequence[bytes]]
    claimed: int = 0
    """Bytes of a data file that `read` reads; 0 for strings within the root proto."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The error that makes a tensor's elements unreadable."""

    error: ProtosliceError


Data = Stored | Filled | Strided | Tiled | Deferred[Stored | Filled | Strided] | Strings | Unreadable


class Use(NamedTuple):
    """Role of a tensor, and the kind of layer that uses it."""

    role: Role
    kind: Kind


_UNKNOWN: Final = Use("other", "other")


@dataclass(frozen=True, slots=True, repr=False)
class Tensor:
    """One tensor: metadata, and the location of its elements."""

    name: str
    """The name in the model, which may be shared by several tensors."""
    address: str
    """Unique in the model: `bundle:KEY`, or `path:` and the path from the root proto."""
    dtype: Dtype | None
    """Data type; None where the model names an unknown type: `data` is then `Unreadable`."""
    shape: tuple[int, ...] | None
    """Lengths per dimension; None where the model has no valid shape."""
    holder: str
    """What holds it in the format: `initializer`, `constant`, `variable`, `parameter`, `weight` …"""
    file: str | None
    """Path of the file with the elements; None where there is no such file or more than one."""
    data: Data
    details: Callable[[], Mapping[str, object]] | None = None
    """Reads further facts of the tensor, as JSON: levels of detail, its entry in a bundle."""
    look: Callable[[Tensor], Use] | None = None
    """Returns what the tensor is for; None if unknown."""

    @property
    def rank(self) -> int | None:
        """Number of dimensions; None for an unknown shape."""
        return None if self.shape is None else len(self.shape)

    @property
    def use(self) -> Use:
        """Role of the tensor, from the graph of the model if it has one, else from its name."""
        return _UNKNOWN if self.look is None else self.look(self)

    def used(self, look: Callable[[Tensor], Use]) -> Tensor:
        """Return a copy with `look`, in a third of the time that `replace` takes."""
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
        """Bytes of all elements, in PLAIN; None for strings, and for unknown dtypes or shapes."""
        if self.dtype is None or self.shape is None or not self.dtype.bits:
            return None
        elements, size = self.dtype.block or (1, self.dtype.width)
        return prod(self.shape) // elements * size

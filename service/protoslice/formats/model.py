"""What a model is here: files, the root proto among them, and tensors whose bytes lie in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from protoslice import _core
from protoslice.errors import NotFound, ProtosliceError
from protoslice.formats.joining import Joining, SourceList
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.sources import RangeSource

__all__ = [
    "Bytes", "Data", "Encoding", "Fault", "Filled", "Format", "Later", "Listed", "MissingFile", "Model", "RootProto",
    "Stored", "Strided", "Strings", "Tensor", "Tensors", "Tile", "Tiled",
]  # fmt: skip


Found = TypeVar("Found", covariant=True)


@dataclass(frozen=True, slots=True)
class RootProto:
    """The root proto as the engine knows it; the ropes of `document` are over `sources`."""

    document: _core.Document
    sources: Sequence[RangeSource]


class MissingFile(NotFound):
    """A file that a model refers to is not among its files."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file = file


@dataclass(frozen=True, slots=True)
class Model:
    """The files of a model, by their paths in it."""

    root: str
    type: str | None
    """The message type of the root proto, where it is one and known."""
    files: Mapping[str, RangeSource]
    proto: RootProto | None
    """None where the root is no proto: the index of a bundle, a program in JSON."""

    def beside(self, path: str) -> RangeSource:
        """The file at `path`, which something in the model refers to."""
        try:
            return self.files[path]
        except KeyError as error:
            raise MissingFile(f"the model refers to a file {path!r}, which is not among its files", path) from error


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that lie somewhere: a rope, and the sources that its extents are of."""

    rope: _core.Rope
    sources: Sequence[RangeSource]

    @classmethod
    def of(cls, source: RangeSource, start: int = 0, stop: int | None = None) -> Bytes:
        """Those of `source` from `start` up to `stop`."""
        stop = source.size if stop is None else stop
        return cls(_core.Rope([(0, start, stop - start)] if stop > start else []), [source])

    @classmethod
    def joined(cls, parts: Iterable[Bytes | bytes]) -> Bytes:
        """Those of all `parts`, one after the other; each source occurs once."""
        sources = SourceList()
        joining = Joining(sources)
        for part in parts:
            joining.add(part)
        return cls(_core.Rope(joining.ropes()), sources.listed)

    @property
    def size(self) -> int:
        """How many there are."""
        return self.rope.size

    @property
    def literals(self) -> int:
        """How many of them are held in memory."""
        return sum(len(piece) for piece in self.rope.pieces() if isinstance(piece, bytes))

    def part(self, start: int, stop: int) -> Bytes:
        """Those from `start` up to `stop`."""
        return Bytes(self.rope.slice(start, stop), self.sources)


class Encoding(Enum):
    """How the elements of a tensor are written."""

    PLAIN = auto()
    """Row-major and little-endian. Types narrower than a byte take one each, integers extended by their sign."""
    LOOSE = auto()
    """The same, but the upper bits of types narrower than a byte say nothing."""
    BIG_ENDIAN = auto()
    """As PLAIN, with the bytes of each element (of each half of a complex one) the other way round."""
    PACKED = auto()
    """A stream of bits: the first element in the lowest bits of the first byte."""
    VARINT = auto()
    """Varints, of which the lowest bits count: a packed field's content. Two's complement."""
    ZIGZAG = auto()
    """Varints of sint32 and sint64 fields."""
    PACKED_VARINT = auto()
    """Varints, each of which stands for one byte of the PACKED form."""


@dataclass(frozen=True, slots=True)
class Stored:
    """All elements, one after the other."""

    bytes: Bytes
    encoding: Encoding = Encoding.PLAIN
    compare: Callable[[], None] | None = None
    """Reads them all and compares them with the checksum that the model has of them, where it has one."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The first elements; the last of them stands for all that follow. None at all stand for zeros."""

    first: Stored


@dataclass(frozen=True, slots=True)
class Strided:
    """All elements, in another order than row by row: how many elements further the next one lies, per dimension."""

    stored: Stored
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A box of a tensor: where it begins, how long it is per dimension, and its elements."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    stored: Stored


@dataclass(frozen=True, slots=True)
class Tiled:
    """A tensor in boxes, which cover it and do not overlap."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Later(Generic[Found]):
    """Elements of which something must be read before it is known where they lie."""

    look: Callable[[], Found]


@dataclass(frozen=True, slots=True)
class Strings:
    """Elements without a common length, read when they are wanted."""

    read: Callable[[], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the bytes of a tensor cannot be had."""

    error: ProtosliceError


Data = Stored | Filled | Strided | Tiled | Later[Stored | Filled | Strided] | Strings | Fault


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor."""

    name: str
    """What its format calls it: several may bear one name."""
    address: str
    """Unique in the model: `bundle:KEY`, or `path:` and the path from the root proto."""
    dtype: Dtype | None
    """None where the model names a type that nobody knows: then its data is a Fault."""
    shape: tuple[int, ...] | None
    """None where the model gives one that makes no sense."""
    kind: str
    """What it is to the model: `initializer`, `constant`, `variable`, `parameter`, `weight` …"""
    file: str | None
    """The path of the file where its bytes lie; None where there is more than one, or none."""
    data: Data

    @property
    def size(self) -> int | None:
        """How many bytes its elements take, one by one; none for strings, and where nobody can know."""
        if self.dtype is None or self.shape is None or not self.dtype.bits:
            return None
        count = 1
        for length in self.shape:
            count *= length
        return count * self.dtype.width


class Tensors(Protocol):
    """The tensors of a model, in its order. They may be made when they are asked for."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, number: int, /) -> Tensor:
        """Tensor `number`."""

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """The tensors of that name, or the one of that address."""


class Listed:
    """Tensors that have been made already."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._numbers: dict[str, list[int]] = {}
        for number, tensor in enumerate(tensors):
            self._numbers.setdefault(tensor.name, []).append(number)
        for number, tensor in enumerate(tensors):
            self._numbers[tensor.address] = [number]

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, number: int, /) -> Tensor:
        return self._tensors[number]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """The tensors of that name, or the one of that address."""
        return self._numbers.get(name_or_address, ())


class Format(Protocol):
    """One kind of model."""

    @property
    def name(self) -> str:
        """What people call it."""

    def wants(self, model: Model) -> bool:
        """Whether `model` is of this kind."""

    def tensors(self, model: Model) -> Tensors:
        """All its tensors. Blocks; reads what says which there are, and none of their bytes."""

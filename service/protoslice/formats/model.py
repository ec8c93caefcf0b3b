"""Models as formats see them: files, the root proto among them, and tensors with their locations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import accumulate
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from protoslice import _core
from protoslice.errors import NotFound, ProtosliceError
from protoslice.facts import Kind, Role
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.schema.detection import Detection, detect, look_at
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource

Found = TypeVar("Found", covariant=True)
_COMPARED: Final = 64
"""Entries of one hash that are compared with the key; beyond, equal hashes count as equal keys."""


@dataclass(frozen=True, slots=True)
class RootProto:
    """The root proto as indexed by the engine; ropes of `document` refer to `sources`."""

    document: _core.Document
    sources: Sequence[RangeSource]


class MissingFile(NotFound):
    """A file that the model refers to is absent from its files."""

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

    def beside(self, path: str) -> RangeSource:
        """The file at `path`, to which the model refers; `MissingFile` if absent."""
        try:
            return self.files[path]
        except KeyError as error:
            raise MissingFile(f"The model refers to the file {path!r}, which is not among its files", path) from error


class Encoding(Enum):
    """Representation of a tensor's elements in its bytes."""

    PLAIN = auto()
    """Row-major, little-endian; types narrower than a byte take one byte each, signed ones sign-extended."""
    LOOSE = auto()
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
    """The first elements, the last of which repeats to the end of the tensor; zeros if there are none."""

    first: Stored


@dataclass(frozen=True, slots=True)
class Strided:
    """All elements, in another order than row-major; `strides` per dimension, in elements."""

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
class Later(Generic[Found]):
    """Elements whose location is known only after `look` has read something."""

    look: Callable[[], Found]


@dataclass(frozen=True, slots=True)
class Strings:
    """Elements of varying length; `read` reads all of them."""

    read: Callable[[], Sequence[bytes]]
    claimed: int = 0
    """Bytes of a data file that `read` reads; 0 for strings within the root proto."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The error that makes a tensor's elements unreadable."""

    error: ProtosliceError


Data = Stored | Filled | Strided | Tiled | Later[Stored | Filled | Strided] | Strings | Fault


class Use(NamedTuple):
    """What a tensor is for."""

    role: Role
    kind: Kind


@dataclass(frozen=True, slots=True, repr=False)
class Tensor:
    """One tensor: metadata, and the location of its elements."""

    name: str
    """The name in the model, which may be shared by several tensors."""
    address: str
    """Unique in the model: `bundle:KEY`, or `path:` and the path from the root proto."""
    dtype: Dtype | None
    """Data type; None where the model names an unknown type: `data` is then a Fault."""
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
        """What the tensor is for, by the graph of the model where it has one, else by its name."""
        return Use("other", "other") if self.look is None else self.look(self)

    def used(self, look: Callable[[Tensor], Use]) -> Tensor:
        """Return the tensor with `look`; as `replace` does, in a third of its time."""
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


class Named(Protocol):
    """A tensor, or the facts of one."""

    @property
    def name(self) -> str:
        """Name, which may be shared by several tensors."""

    @property
    def address(self) -> str:
        """Unique in the model."""


Row = TypeVar("Row", bound=Named)


class HashIndex:
    """Index from keys to their numbers without the keys themselves: 16 to 24 bytes per key."""

    def __init__(self, keys: Iterable[str], count: int) -> None:
        """Index of `keys`, at most `count` of them."""
        self._mask = (1 << count.bit_length()) - 1
        self._first = array("I", bytes(4 * (self._mask + 1)))
        self._next = array("I")
        self._hashes = array("q")
        for number, key in enumerate(keys):
            found = hash(key)
            slot = found & self._mask
            self._hashes.append(found)
            self._next.append(self._first[slot])
            self._first[slot] = number + 1

    def find(self, key: str) -> list[int]:
        """The numbers of all keys with the hash of `key`, ascending; callers compare the keys."""
        wanted, found = hash(key), list[int]()
        at = self._first[wanted & self._mask]
        while at:
            if self._hashes[at - 1] == wanted:
                found.append(at - 1)
            at = self._next[at - 1]
        return found[::-1]


class TensorList(Sequence[Row]):
    """The tensors of a model, or their facts, in its order: built on access, and found by name or address.

    Each takes a few bytes of memory until it is built.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], Row],
        key: Callable[[int], tuple[str, str]] | None = None,
        numbers: Callable[[str], Sequence[int]] | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`make` builds a tensor by number; `key` gives its name and address at less cost.

        `numbers` replaces the index of names and addresses. All must be thread-safe. `metadata` are texts by key that
        the files have in addition to the tensors.
        """
        self.metadata = metadata
        self._count = count
        self._make = make
        self._key = key
        self._numbers = numbers

    @classmethod
    def of(cls, rows: Sequence[Row]) -> TensorList[Row]:
        """Return a list of finished tensors."""
        return TensorList(len(rows), rows.__getitem__)

    @classmethod
    def joined(
        cls, parts: Sequence[TensorList[Row]], metadata: Mapping[str, str] = MappingProxyType({})
    ) -> TensorList[Row]:
        """Return the tensors of all `parts`, in order."""
        starts = list(accumulate(map(len, parts), initial=0))

        def place(number: int) -> tuple[TensorList[Row], int]:
            part = bisect_right(starts, number) - 1
            return parts[part], number - starts[part]

        def make(number: int) -> Row:
            part, number = place(number)
            return part[number]

        def key(number: int) -> tuple[str, str]:
            part, number = place(number)
            return part.key(number)

        def numbers(name: str) -> Sequence[int]:
            found = zip(starts, parts, strict=False)
            return [start + number for start, part in found for number in part.numbers(name)]

        indexed = all(part._numbers is None for part in parts)
        return TensorList(starts[-1], make, key, None if indexed else numbers, metadata)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, range(self._count))

    def __getitem__(self, number: int, /) -> Row:  # type: ignore[override]  # no slices
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._make(number)

    def key(self, number: int) -> tuple[str, str]:
        """Return name and address of tensor `number`."""
        if self._key is not None:
            return self._key(number)
        row = self._make(number)
        return row.name, row.address

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """Return the number of the tensor with that address, else of all with that name; empty if there is none."""
        if self._numbers is not None:
            return self._numbers(name_or_address)
        found = self._index.find(name_or_address)
        if len(found) <= _COMPARED:
            found = [entry for entry in found if self.key(entry // 2)[entry % 2] == name_or_address]
        addressed = [entry // 2 for entry in found if entry % 2]
        return addressed[-1:] or [entry // 2 for entry in found]

    @cached_property
    def _index(self) -> HashIndex:
        """Hashes of names under even numbers and of addresses under odd ones: 2n and 2n + 1 for tensor n."""
        return HashIndex((each for number in range(self._count) for each in self.key(number)), 2 * self._count)


Tensors = TensorList[Tensor]
Bytes = Rope
Listed = TensorList.of
"""Former names, which formats of other packages import."""


class Format(Protocol):
    """A family of models, such as ONNX, and the extraction of its tensors."""

    @property
    def name(self) -> str:
        """Name of the format for users."""

    def wants(self, model: Model) -> bool:
        """True when the format applies to `model`."""

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of `model`. Blocks; reads metadata, but no elements.

        A format may also have a method `uses(model, found)`, which returns a function from one of these tensors to its
        `Use`. For other formats, names decide.
        """


class ProtoFormat(ABC):
    """Base class of formats whose root is a message of one package."""

    package: ClassVar[str]
    """Beginning of the full names of the messages' types, such as `onnx.`."""

    def wants(self, model: Model) -> bool:
        """True when the root is a message of the package."""
        return model.proto is not None and (model.type or "").startswith(self.package)

    def tensors(self, model: Model) -> Tensors:
        """All tensors of `model`; none when its root is no proto."""
        return Tensors.of(()) if model.proto is None else self.tensors_in(model, model.proto)

    @abstractmethod
    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """All tensors of `model`, whose root is `proto`. Blocks; reads metadata, but no elements."""

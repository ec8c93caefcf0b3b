"""GGUF files: their metadata, named tensors, and shards."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from protoslice.detection.magic import GGUF, GGUF_MAGIC
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded, Unsupported
from protoslice.formats.weights import KIND, address_of, check_apart, check_count, joined, shards_of
from protoslice.schema.strings import text_of
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.layout import stored_size
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Encoding, Model, Stored, Tensor, Unreadable

FILE_TYPES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
}  # fmt: skip
"""The names of quantizations by the number in `general.file_type`."""
_LONGEST: Final = 256 << 10
"""The byte limit of a text. Longer texts are not read."""
_UINT32: Final = 4


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """Facts about a model. A text is empty if the header lacks it."""

    architecture: str
    file_type: str
    parameters: int
    chat_template: str
    license: str


def facts_of(source: RangeSource, path: str) -> GgufFacts:
    """Return the facts of a GGUF file; only its header is read."""
    header = read_header(source, path)

    def text(key: str) -> str:
        return _text(source, path, header, key)

    return GgufFacts(
        text("general.architecture"),
        FILE_TYPES.get(_number(source, path, header, "general.file_type"), "unknown"),
        sum(prod(info.shape) for info in header.tensors),
        text("tokenizer.chat_template"),
        text("general.license"),
    )


def _cursor(source: RangeSource, path: str, header: GgufHeader, at: int) -> Cursor:
    return Cursor(source, path, at, ">" if header.big_endian else "<")


def _text(source: RangeSource, path: str, header: GgufHeader, key: str) -> str:
    value = header.metadata.get(key)
    if value is None or value.type != STRING:
        return ""
    cursor = _cursor(source, path, header, value.offset)
    length = cursor.number("Q")
    return text_of(cursor.take(length)) if length <= _LONGEST else ""


def _number(source: RangeSource, path: str, header: GgufHeader, key: str) -> int:
    value = header.metadata.get(key)
    return _cursor(source, path, header, value.offset).number("I") if value and value.type == _UINT32 else -1


LARGEST_HEADER: Final = 128 << 20
"""The byte limit of a header. The tokenizers in headers of real models take up to about 20 MB."""
_WINDOW: Final = 1 << 20
_MOST_KEYS: Final = 1 << 16
_MOST_ITEMS: Final = 1 << 22
"""Largest number of strings and lists that all lists of a header may contain. Each costs a separate read."""
_DEEPEST: Final = 8
_MOST_DIMENSIONS: Final = 8
_LONGEST_NAME: Final = (1 << 16) - 1
_DEFAULT_ALIGNMENT: Final = 32

SCALARS: Final = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
"""The name and the `struct` code of each numeric type, by GGUF's type number."""
STRING: Final = 8
LIST: Final = 9


@dataclass(frozen=True, slots=True)
class Value:
    """The type and the file offset of a metadata value."""

    type: int
    offset: int


@dataclass(frozen=True, slots=True)
class Info:
    """A tensor's entry in the header. `offset` counts from the start of the elements in the file."""

    name: str
    shape: tuple[int, ...]
    """The length of each dimension in row-major order, which is the reverse of the file's order."""
    type: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a GGUF file."""

    version: int
    big_endian: bool
    metadata: dict[str, Value]
    tensors: tuple[Info, ...]
    alignment: int
    data: int
    """The file offset at which the elements start."""


def read_header(source: RangeSource, path: str) -> GgufHeader:
    """Return the validated header of a GGUF file.

    Raise `CorruptModel` for a damaged header, and `Unsupported` for versions other than 2 and 3. Raise
    `LimitExceeded` for a header of more than 128 MiB.
    """
    cursor = Cursor(source, path)
    if cursor.take(4) != GGUF_MAGIC:
        raise CorruptModel("This is not a GGUF file: it does not begin with GGUF", 0, path)
    version = cursor.number("I")
    if not version & 0xFFFF:
        cursor.order, version = ">", int.from_bytes(version.to_bytes(4, "little"))
    if version not in {2, 3}:
        raise Unsupported(f"GGUF version {version} is not supported: convert the file to version 3", 4, path)
    tensors, keys = cursor.number("Q"), cursor.number("Q")
    check_count(tensors, path)
    if keys > _MOST_KEYS:
        raise LimitExceeded(f"A GGUF file may have at most {_MOST_KEYS} keys, not {keys}", 16, path)
    metadata = dict[str, Value]()
    for _ in range(keys):
        at, key, kind = cursor.at, cursor.name(), cursor.number("I")
        if key in metadata:
            raise CorruptModel(f"The key {key[:200]!r} is repeated", at, path)
        metadata[key] = Value(kind, cursor.at)
        cursor.skip_value(kind)
    found = tuple(_info(cursor) for _ in range(tensors))
    alignment = _alignment(source, path, metadata, cursor)
    data = -(-cursor.at // alignment) * alignment
    return GgufHeader(version, cursor.order == ">", metadata, found, alignment, data)


class Cursor:
    """A reader that moves through a GGUF file value by value."""

    def __init__(self, source: RangeSource, path: str, at: int = 0, order: str = "<") -> None:
        self.at = at
        self.order = order
        """The byte order, as a prefix of `struct` formats."""
        self._source = source
        self._path = path
        self._start = 0
        self._window = b""
        self._items = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self.at + size
        if end > self._start + len(self._window) or self.at < self._start:
            self._check(end)
            self._start = self.at
            self._window = self._source.read(self.at, min(max(size, _WINDOW), self._source.size - self.at))
        begin = self.at - self._start
        self.at = end
        return self._window[begin : begin + size]

    def number(self, code: str) -> int:
        """Return the next integer, whose type is the `struct` code `code`."""
        found: int = struct.unpack(self.order + code, self.take(struct.calcsize(code)))[0]
        return int(found)

    def scalars(self, kind: int, count: int) -> tuple[Any, ...]:
        """Return the next `count` numbers of type `kind`."""
        name, code = SCALARS[kind]
        found = struct.unpack(f"{self.order}{count}{code}", self.take(count * struct.calcsize("<" + code)))
        return tuple(map(bool, found)) if name == "bool" else found

    def string(self) -> bytes:
        """Return the next string."""
        return self.take(self.number("Q"))

    def name(self) -> str:
        """Return the next string, which is a key or a name; raise `CorruptModel` above 65,535 bytes."""
        length = self.number("Q")
        if length > _LONGEST_NAME:
            raise CorruptModel(f"A name has {length} bytes; at most {_LONGEST_NAME} are allowed", self.at, self._path)
        return text_of(self.take(length))

    def list_head(self) -> tuple[int, int]:
        """Return the element type and the element count of the list that begins here."""
        return self.number("I"), self.number("Q")

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Move to the end of the next value."""
        if kind in SCALARS:
            self._skip(struct.calcsize("<" + SCALARS[kind][1]))
        elif kind == STRING:
            self._skip(self.number("Q"))
        elif kind == LIST and depth < _DEEPEST:
            inner, count = self.list_head()
            if inner in SCALARS:
                self._skip(count * struct.calcsize("<" + SCALARS[inner][1]))
                return
            self._items += count
            if self._items > _MOST_ITEMS:
                raise LimitExceeded(f"Lists in the metadata have more than {_MOST_ITEMS} strings", self.at, self._path)
            for _ in range(count):
                self.skip_value(inner, depth + 1)
        elif kind == LIST:
            raise LimitExceeded(f"Lists are nested more than {_DEEPEST} deep", self.at, self._path)
        else:
            raise CorruptModel(f"The metadata has the type {kind}, which GGUF does not define", self.at, self._path)

    def _skip(self, size: int) -> None:
        self._check(self.at + size)
        self.at += size

    def _check(self, end: int) -> None:
        if end > self._source.size:
            raise CorruptModel(
                f"The header extends to byte {end}, but the file has only {self._source.size}", self.at, self._path
            )
        if end > LARGEST_HEADER:
            raise LimitExceeded(f"A GGUF header may have at most {LARGEST_HEADER} bytes", self.at, self._path)


def _info(cursor: Cursor) -> Info:
    name, count = cursor.name(), cursor.number("I")
    if count > _MOST_DIMENSIONS:
        raise CorruptModel(f"The tensor {name[:200]!r} has {count} dimensions, more than {_MOST_DIMENSIONS}", cursor.at)
    shape = struct.unpack(f"{cursor.order}{count}Q", cursor.take(8 * count))
    return Info(name, tuple(reversed(shape)), cursor.number("I"), cursor.number("Q"))


def _alignment(source: RangeSource, path: str, metadata: dict[str, Value], cursor: Cursor) -> int:
    value = metadata.get("general.alignment")
    if value is None:
        return _DEFAULT_ALIGNMENT
    if value.type != _UINT32:  # as the `gguf` package and llama.cpp require
        kind = {STRING: "string", LIST: "list"}.get(value.type) or SCALARS[value.type][0]
        raise CorruptModel(f"general.alignment is a {kind}, but it must be a uint32", value.offset, path)
    found = Cursor(source, path, value.offset, cursor.order).number("I")
    if not found or found & (found - 1):
        raise CorruptModel(f"Invalid general.alignment {found}: it must be a power of two", value.offset, path)
    return found


TYPES: Final[Mapping[int, Dtype]] = {
    number: DTYPES[name]
    for number, name in {
        0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
        12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
        20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
        29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
    }.items()
}  # fmt: skip
"""A map from GGUF's tensor type numbers to dtypes."""


class Gguf:
    """The format of GGUF files, which llama.cpp and other programs write."""

    name = "gguf"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a GGUF file."""
        return model.proto is None and model.type == GGUF and model.root in model.files

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of the file. If the file is a shard, return the tensors of all shards."""
        return joined({path: GgufFile(model.file(path), path) for path in shards_of(model.root)})


class GgufFile:
    """The tensors of one GGUF file."""

    def __init__(self, source: RangeSource, path: str) -> None:
        """Read and validate the header; raise `CorruptModel` if two tensors overlap or have the same name."""
        self._source = source
        self._path = path
        self._header: GgufHeader = read_header(source, path)
        names = {info.name for info in self._header.tensors}
        if len(names) < len(self._header.tensors):
            raise CorruptModel("Two tensors in the file have the same name", path=path)
        sizes = ((info, _size(info)) for info in self._header.tensors)
        check_apart(((info.offset, info.offset + size, info.name) for info, size in sizes if size), path)

    def __len__(self) -> int:
        return len(self._header.tensors)

    def name(self, number: int) -> str:
        """Return the name of the tensor with this number. Numbers follow the order of the header."""
        return self._header.tensors[number].name

    def tensor(self, number: int) -> Tensor:
        """Return the tensor with this number.

        Its data is `Unreadable` if the elements reach beyond the end of the file or have an unknown type.
        """
        info = self._header.tensors[number]
        data: Data
        try:
            data = self._elements(info)
        except OF_MODELS as error:
            data = Unreadable(error)
        return Tensor(info.name, address_of(info.name), TYPES.get(info.type), info.shape, KIND, self._path, data)

    def _elements(self, info: Info) -> Stored:
        if info.type not in TYPES:
            raise Unsupported(f"The tensor {info.name[:200]!r} has the unknown type {info.type}", path=self._path)
        size = _size(info)
        assert size is not None, "only unknown types have no size"
        start = self._header.data + info.offset
        if info.offset % self._header.alignment:
            raise CorruptModel(
                f"The tensor {info.name[:200]!r} is not aligned to {self._header.alignment} bytes", start, self._path
            )
        if start + size > self._source.size:
            raise CorruptModel(
                f"The tensor {info.name[:200]!r} ends at byte {start + size}, but the file has only "
                f"{self._source.size} bytes",
                start,
                self._path,
            )
        encoding = Encoding.BIG_ENDIAN if self._header.big_endian else Encoding.PLAIN
        return Stored(Rope.of(self._source, start, start + size), encoding)


def _size(info: Info) -> int | None:
    """Return a tensor's size in bytes; None for an unknown type. Raise `CorruptModel` for an impossible shape."""
    dtype = TYPES.get(info.type)
    if dtype is None:
        return None
    count = element_count(info.shape if dtype.block is None else dtype.bytes_shape(info.shape))
    return stored_size(dtype, count, Encoding.PLAIN)

"""Tensor files of Paddle: a small header, which alone determines the length, then the elements."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import schema
from protoslice.errors import CorruptModel, LimitExceeded, ProtosliceError, Unsupported
from protoslice.formats.model import Stored
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.shapes import element_count
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource

_DESC: Final = "paddle.framework.proto.VarType.TensorDesc"
_AHEAD: Final = 4096
"""Bytes read at once; for small tensors they often reach the next header."""
_MOST_LEVELS: Final = 1024
_MOST_DESC: Final = 4096
_MOST_NUMBERS: Final = 1 << 17
"""Offsets of levels, or row numbers, that are held at once."""

_TYPES: Final = {
    0: "BOOL", 1: "I16", 2: "I32", 3: "I64", 4: "F16", 5: "F32", 6: "F64", 19: "U64", 20: "U8", 21: "I8", 22: "BF16",
    23: "C64", 24: "C128", 32: "F8_E4M3FN", 33: "F8_E5M2", 36: "U16", 37: "U32", 38: "U64",
}  # fmt: skip


_NUMBERS: Final = {name: number for number, name in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class Blob:
    """A saved tensor: dtype, shape, and the range of its elements in the file."""

    dtype: Dtype
    shape: tuple[int, ...]
    head: int
    """Offset of the blob in the file."""
    start: int
    """Offset of the first element in the file."""
    end: int
    """Offset of the end of the elements, which is the end of the blob."""


def stored(source: RangeSource, blob: Blob) -> Stored:
    """The elements of `blob`, which lies in `source`."""
    return Stored(Rope.of(source, blob.start, blob.end))


def details_of(source: RangeSource, path: str, blob: Blob, *, rows: bool = False) -> dict[str, object]:
    """Levels of detail of `blob` in `source`, the file at `path`; with `rows`, rows and height."""
    return Heads(source, path, blob.head).details(rows=rows)


def dtype_of(number: int) -> Dtype | None:
    """The dtype of Paddle's type `number`; None for types without elements of a fixed width."""
    return DTYPES.get(_TYPES.get(number, ""))


def number_of(dtype: Dtype) -> int:
    """Paddle's number of a type; `KeyError` for a dtype that it does not have."""
    return _NUMBERS[dtype.name]


class Heads:
    """A reader of one file that goes from header to header and skips the elements."""

    def __init__(self, source: RangeSource, path: str, at: int = 0) -> None:
        """Reader of `source`, the file at `path`, from the blob at offset `at` on."""
        self._source = source
        self._path = path
        self._at = at
        self._start = 0
        self._bytes = b""
        self._held = 0
        self._desc = schema.bundled().message_class(_DESC)

    @property
    def at(self) -> int:
        """Offset of the next blob."""
        return self._at

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._source.size

    def next(self, *, rows: bool = False) -> Blob:
        """The next blob; with `rows`, one that holds selected rows of a tensor.

        `CorruptModel` for a malformed header or a file that ends too early, `Unsupported` for an unknown data type.
        """
        with self._blaming():
            head = self._at
            self._version("the blob")
            self._rows() if rows else self._levels()
            self._version("the tensor")
            return self._tensor(head)

    def details(self, *, rows: bool = False) -> dict[str, object]:
        """Levels of detail of the next blob, as offsets; with `rows`, row numbers and height.

        `CorruptModel` for malformed ones, `LimitExceeded` for more than 131,072 numbers.
        """
        with self._blaming():
            self._version("the blob")
            if not rows:
                return {"levels": [self._numbers(length // 8) for length in self._level_lengths()]}
            return {"rows": self._numbers(self._number(8), signed=True), "height": self._numbers(1, signed=True)[0]}

    def finish(self) -> None:
        """Raise `CorruptModel` unless the last blob ends at the end of the file."""
        if self._at != self.size:
            raise self._bad(f"{self.size - self._at} bytes follow the last tensor")

    def _version(self, what: str) -> None:
        version = self._number(4)
        if version != 0:
            raise self._bad(f"{what} has version {version}, but only version 0 is supported", back=4)

    def _levels(self) -> None:
        """Skip the levels of detail: offsets of sequences, of no use for the elements."""
        for length in self._level_lengths():
            self._skip(length)

    def _level_lengths(self) -> Iterator[int]:
        """Length of each level of detail in bytes; the caller passes over its numbers before it goes on."""
        levels = self._number(8)
        if levels > _MOST_LEVELS:
            raise self._bad(f"A tensor has {levels} levels of detail, which is too many", back=8)
        for _ in range(levels):
            length = self._number(8)
            if length % 8:
                raise self._bad(
                    f"A level of detail takes {length} bytes, which is not a whole number of values", back=8
                )
            yield length

    def _rows(self) -> None:
        """Skip the row numbers and the height of selected rows."""
        self._skip(8 * self._number(8) + 8)

    def _tensor(self, head: int) -> Blob:
        length = int.from_bytes(self._take(4), "little", signed=True)
        if not 0 < length <= _MOST_DESC:
            raise self._bad(f"A tensor description has an invalid length of {length} bytes", back=4)
        try:
            desc: Any = schema.parsed(self._desc, self._take(length))
        except DecodeError as error:
            raise self._bad(f"A tensor description does not parse: {error}", back=length) from error
        dtype, shape = dtype_of(desc.data_type), tuple(desc.dims)
        if dtype is None:
            raise Unsupported(f"Unknown Paddle data type {desc.data_type}", self._at - length)
        start = self._at
        self._skip(element_count(shape) * dtype.width)
        return Blob(dtype, shape, head, start, self._at)

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _numbers(self, count: int, *, signed: bool = False) -> list[int]:
        self._held += count
        if self._held > _MOST_NUMBERS:
            raise LimitExceeded(
                f"Shapes and levels of detail have more than {_MOST_NUMBERS} numbers: download the file to read them",
                self._at,
            )
        at = self._at
        self._skip(8 * count)
        return list(struct.unpack(f"<{count}{'q' if signed else 'Q'}", self._source.read(at, 8 * count)))

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Name the file in each error that names none."""
        try:
            yield
        except ProtosliceError as error:
            error.path = error.path or self._path
            raise

    def _take(self, length: int) -> bytes:
        at = self._at
        self._skip(length)
        if not self._start <= at <= self._at <= self._start + len(self._bytes):
            self._start, self._bytes = at, self._source.read(at, min(_AHEAD, self.size - at))
        return self._bytes[at - self._start : self._at - self._start]

    def _skip(self, length: int) -> None:
        if length > self.size - self._at:
            raise self._bad(f"{length} bytes expected, but only {self.size - self._at} remain")
        self._at += length

    def _bad(self, what: str, *, back: int = 0) -> CorruptModel:
        return CorruptModel(f"Invalid parameter file: {what}", self._at - back, self._path)

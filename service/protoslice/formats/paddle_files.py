"""Paddle's parameter files. One file holds many tensors, or each tensor has a file."""

from __future__ import annotations

import posixpath
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import schema
from protoslice.detection import HEAD
from protoslice.detection.magic import has_rows, is_parameters
from protoslice.errors import CorruptModel, LimitExceeded, ProtosliceError, Unsupported
from protoslice.formats.messages import TensorBuilder
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Model, Stored, Tensor

_DESC: Final = "paddle.framework.proto.VarType.TensorDesc"
_AHEAD: Final = 4096
"""The bytes of one read. After a small tensor, they often include the next header."""
_MOST_LEVELS: Final = 1024
_MOST_DESC: Final = 4096
_MOST_NUMBERS: Final = 1 << 17
"""Largest number of numbers that are held at once: offsets in levels of detail, or row numbers."""

_TYPES: Final = {
    0: "BOOL", 1: "I16", 2: "I32", 3: "I64", 4: "F16", 5: "F32", 6: "F64", 19: "U64", 20: "U8", 21: "I8", 22: "BF16",
    23: "C64", 24: "C128", 32: "F8_E4M3FN", 33: "F8_E5M2", 36: "U16", 37: "U32", 38: "U64",
}  # fmt: skip


_NUMBERS: Final = {name: number for number, name in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class Blob:
    """A saved tensor: its dtype, its shape, and the file range with its elements."""

    dtype: Dtype
    shape: tuple[int, ...]
    head: int
    """The file offset of the blob."""
    start: int
    """The file offset of the first element."""
    end: int
    """The file offset of the end of the elements, which is also the end of the blob."""


def stored(source: RangeSource, blob: Blob) -> Stored:
    """Return the elements of `blob`, which is in `source`."""
    return Stored(Rope.of(source, blob.start, blob.end))


def details_of(source: RangeSource, path: str, blob: Blob, *, rows: bool = False) -> dict[str, object]:
    """Return the levels of detail of `blob`, or its row numbers and height if `rows` is set.

    `source` is the file with the blob, and `path` is the path of this file. `Heads.details` describes the errors.
    """
    return Heads(source, path, blob.head).details(rows=rows)


def dtype_of(number: int) -> Dtype | None:
    """Return the dtype of Paddle's type `number`; None for a type whose elements have no fixed width."""
    return DTYPES.get(_TYPES.get(number, ""))


def number_of(dtype: Dtype) -> int:
    """Return Paddle's type number of `dtype`; raise `KeyError` for a dtype that Paddle lacks."""
    return _NUMBERS[dtype.name]


class Heads:
    """A reader of the tensor headers in one file. It skips the elements between the headers."""

    def __init__(self, source: RangeSource, path: str, at: int = 0) -> None:
        """Take the file `source` and its `path`; the first blob to read is at offset `at`."""
        self._source = source
        self._path = path
        self._at = at
        self._start = 0
        self._bytes = b""
        self._held = 0
        self._desc = schema.bundled().message_class(_DESC)

    @property
    def at(self) -> int:
        """The file offset of the next blob."""
        return self._at

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._source.size

    def next(self, *, rows: bool = False) -> Blob:
        """Return the next blob, which holds selected rows of a tensor if `rows` is set.

        Raise `CorruptModel` for a malformed header or a truncated file, and `Unsupported` for an unknown data type.
        """
        with self._blaming():
            head = self._at
            self._version("the blob")
            self._rows() if rows else self._levels()
            self._version("the tensor")
            return self._tensor(head)

    def details(self, *, rows: bool = False) -> dict[str, object]:
        """Return the levels of detail of the next blob as lists of offsets.

        If `rows` is set, return the blob's row numbers and height instead. Raise `CorruptModel` for malformed data, and
        `LimitExceeded` for more than 131,072 numbers.
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
        """Skip the levels of detail. They are offsets of sequences. Reading elements does not need them."""
        for length in self._level_lengths():
            self._skip(length)

    def _level_lengths(self) -> Iterator[int]:
        """Yield the length in bytes of each level of detail. The caller must skip a level before taking the next."""
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
        """Add the path of the file to each error without a path."""
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


_KIND: Final = "parameter"
_NAMES: Final = ".names"
_JOINED: Final = (".pdiparams", "__params__")
"""The endings of files that are named after their model, not after a tensor."""
_MOST: Final = 1 << 18
"""Largest number of tensors of a file. Their headers have to be read one after another."""
_MOST_NAMES: Final = 16 << 20
_MOST_FILES: Final = 4096
"""Largest number of files whose beginnings are read to find parameter files."""


class PaddleParameters:
    """The format of parameter files without a program: one file with many tensors, or files with one tensor each."""

    name = "paddle parameters"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a parameter file."""
        return model.proto is None and model.detection.kind == "paddle"

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors in the order of the root file.

        If the root has only one tensor, return the tensors of all files with one tensor. Raise `CorruptModel` for a
        damaged header, and for a list of names whose length differs from the number of tensors. Raise `LimitExceeded`
        for more than 262,144 tensors.
        """
        source = model.file(model.root)
        rows = has_rows(_head(source))
        starts = _starts(source, model.root, rows=rows)
        if len(starts) == 1 and len(paths := _apart(model)) > 1:
            return _in_files(model, paths)
        names = _names(model.files, model.root, len(starts))

        def make(number: int) -> Tensor:
            blob = Heads(source, model.root, starts[number]).next(rows=rows)
            name, address = called(number)
            details = partial(details_of, source, model.root, blob, rows=rows)
            return Tensor(name, address, blob.dtype, blob.shape, _KIND, model.root, stored(source, blob), details)

        def called(number: int) -> tuple[str, str]:
            path = f"tensor[{number}]"
            return names[number] if names else path, f"path:{path}"

        return Tensors(len(starts), make, called)


def _apart(model: Model) -> Sequence[str]:
    """Return the sorted paths of all parameter files of the model, each of which has one tensor.

    Return only the root if its name, or a list of names next to it, says that it holds all tensors. Raise
    `LimitExceeded` for more than 4096 files.
    """
    if model.root.endswith(_JOINED) or model.root + _NAMES in model.files:
        return [model.root]
    paths = [path for path in model.files if not path.endswith((*_JOINED, _NAMES))]
    if len(paths) > _MOST_FILES:
        raise LimitExceeded(
            f"The model has {len(paths)} possible parameter files, but at most {_MOST_FILES} are checked"
        )
    return sorted(path for path in paths if path == model.root or is_parameters(_head(model.files[path])))


def _in_files(model: Model, paths: Sequence[str]) -> Tensors:
    """Return the tensor of each file. The tensor's name is the file's path relative to the common folder of the files.

    If a file has an error, the data of its tensor is `Unreadable`.
    """
    folder = posixpath.join(posixpath.commonpath([posixpath.dirname(path) for path in paths]), "")

    def make(number: int) -> Tensor:
        name, address = called(number)
        builder = TensorBuilder(name, address.removeprefix("path:"), _KIND, paths[number])
        return builder.tensor(lambda builder: _alone(model.file(paths[number]), builder))

    def called(number: int) -> tuple[str, str]:
        return paths[number].removeprefix(folder), f"path:tensor[{number}]"

    return Tensors(len(paths), make, called)


def _alone(source: RangeSource, builder: TensorBuilder) -> Data:
    """Return the elements of the only tensor in a file."""
    path, rows, heads = str(builder.file), has_rows(_head(source)), Heads(source, str(builder.file))
    blob = heads.next(rows=rows)
    heads.finish()
    builder.dtype, builder.shape = blob.dtype, blob.shape
    builder.details = partial(details_of, source, path, blob, rows=rows)
    return stored(source, blob)


def _head(source: RangeSource) -> bytes:
    return source.read(0, min(source.size, HEAD))


def _starts(source: RangeSource, path: str, *, rows: bool) -> Sequence[int]:
    """Return the offset of each tensor in the file."""
    heads, starts = Heads(source, path), array("Q")
    while heads.at < heads.size:
        if len(starts) == _MOST:
            raise LimitExceeded(f"The file contains more than {_MOST} tensors", heads.at, path)
        starts.append(heads.at)
        heads.next(rows=rows)
        if rows:
            heads.finish()
    return starts


def _names(files: Mapping[str, RangeSource], path: str, count: int) -> Sequence[str]:
    """Return the names of the `count` tensors in the file at `path`; empty if the names are unknown.

    A file next to the parameters may list the names, one per line. Without such a list, a tensor that is alone in its
    file has the file's name.
    """
    listed = files.get(path + _NAMES)
    if listed is None:
        return [posixpath.basename(path)] if count == 1 and not path.endswith(_JOINED) else []
    if listed.size > _MOST_NAMES:
        raise LimitExceeded(
            f"A list of names may have at most {_MOST_NAMES} bytes, but this one has {listed.size}", path=path
        )
    try:
        names = listed.read(0, listed.size).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptModel("The list of names is not UTF-8", error.start, path + _NAMES) from error
    if len(names) != count:
        raise CorruptModel(
            f"There are {len(names)} names for {count} tensors: use one line per tensor", 0, path + _NAMES
        )
    return [name.removesuffix("\r") for name in names]

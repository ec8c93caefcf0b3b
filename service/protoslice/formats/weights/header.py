"""Headers of safetensors files, read entry by entry: no step depends on what another entry claims."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.bytes import Bytes
from protoslice.formats.model import Data, Encoding, Fault, Stored, Tensor
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.shapes import checked, element_count
from protoslice.formats.weights.files import KIND, address_of, check_apart, check_count
from protoslice.sources.source import RangeSource

PADDING: Final = "protoslice.padding."
"""Beginning of the names of entries that fill gaps before aligned tensors, as the format allows none."""
METADATA: Final = "__metadata__"
LARGEST_HEADER: Final = 64 << 20
"""Limit in bytes of a header. The format allows 100 MB; headers of real models have at most a few."""
PREFIX: Final = 8
"""Bytes before the header, which hold its length."""
_MOST_METADATA: Final = 1 << 16
_DTYPES: Final = {dtype.safetensors: dtype for dtype in DTYPES.values() if dtype.safetensors is not None}

_SPACE: Final = r"[ \t\r\n]*+"
_STRING: Final = r'"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)"'
_KEY: Final = re.compile(rf"{_SPACE}{_STRING}{_SPACE}:{_SPACE}")
_PAIR: Final = re.compile(rf"{_SPACE}{_STRING}{_SPACE}:{_SPACE}{_STRING}{_SPACE}([,}}])")
_VALUE: Final = re.compile(r"(\{[^{}]{0,4096}\})" + _SPACE + "([,}])")
_USUAL: Final = re.compile(
    r'\{"dtype":"([A-Z0-9_]{1,20})","shape":\[([0-9,]{0,1000})\],"data_offsets":\[([0-9]{1,19}),([0-9]{1,19})\]\}([,}])'
)
"""A value as all known writers spell it, which spares the general parser."""


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """One tensor of a header; offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """A safetensors file: its header, of which only the text and the places of the entries are kept."""

    def __init__(self, source: RangeSource, path: str, prefix: str = "") -> None:
        """Reads and validates the header; `prefix` goes before the names of the tensors.

        `CorruptModel` for a damaged header, and for tensors that overlap or leave gaps; `LimitExceeded` for a header
        of more than 64 MiB.
        """
        self._source = source
        self._path = path
        self._prefix = prefix
        self._text, self._data = _header(source, path)
        self._places = array("Q")
        self.metadata: dict[str, str] = {}
        """The text by key in `__metadata__`."""
        places = [(entry.start, entry.end, name) for name, entry in self._scan()]
        check_apart(places, path, dense=True)
        end = max((stop for _, stop, _ in places), default=0)
        if self._data + end < source.size:
            raise CorruptModel(f"{source.size - self._data - end} bytes follow the last tensor", self._data + end, path)

    def __len__(self) -> int:
        return len(self._places)

    def name(self, number: int) -> str:
        """Name of tensor `number`, in the order of the header."""
        found = _KEY.match(self._text, self._places[number])
        assert found is not None, "the scan has matched it"
        return self._prefix + _unescaped(found[1])

    def entry(self, number: int) -> HeaderEntry:
        """HeaderEntry of tensor `number`."""
        found = _KEY.match(self._text, self._places[number])
        assert found is not None, "the scan has matched it"
        return self._value(found.end())[0]

    def tensor(self, number: int) -> Tensor:
        """Tensor `number`; elements beyond the end of the file, or of an unknown type, are a Fault."""
        name, entry = self.name(number), self.entry(number)
        dtype = _DTYPES.get(entry.dtype)
        data: Data
        try:
            data = self._elements(name, entry, dtype)
        except CorruptModel as error:
            data = Fault(error)
        return Tensor(name, address_of(name), dtype, entry.shape, KIND, self._path, data)

    def _elements(self, name: str, entry: HeaderEntry, dtype: Dtype | None) -> Stored:
        start, end = self._data + entry.start, self._data + entry.end
        if dtype is None:
            raise CorruptModel(f"The tensor {name[:200]!r} has the unknown type {entry.dtype!r}", path=self._path)
        if end > self._source.size:
            raise CorruptModel(
                f"The tensor {name[:200]!r} ends at byte {end}, but the file has only {self._source.size} bytes",
                start,
                self._path,
            )
        encoding = Encoding.PACKED if dtype.narrow else Encoding.PLAIN
        return checked(Stored(Bytes.of(self._source, start, end), encoding), dtype, entry.shape)

    def _scan(self) -> Iterator[tuple[str, HeaderEntry]]:
        """Names and entries of all tensors, whose places are kept."""
        text, at, seen = self._text, 1, set[str]()
        more = text[1:].lstrip(" \t\r\n")[:1] != "}"
        if not more:
            at = text.index("}") + 1
        while more:
            found = _KEY.match(text, at)
            if found is None:
                raise self._damaged(at, "expected the name of a tensor in quotes, and a colon")
            name = _unescaped(found[1])
            if name in seen or any("\ud800" <= letter <= "\udfff" for letter in name):
                raise self._damaged(
                    at, f"the name {name[:200]!r} is repeated" if name in seen else "a name is not valid text"
                )
            seen.add(name)
            if name == METADATA:
                at, mark = self._read_metadata(found.end())
            else:
                self._places.append(at)
                check_count(len(self._places), self._path)
                entry, at, mark = self._value(found.end())
                if name.startswith(PADDING):
                    self._places.pop()
                yield name, entry
            more = mark == ","
        if text[at:].strip(" \t\r\n"):
            raise self._damaged(at, "expected the end of the header")

    def _value(self, at: int) -> tuple[HeaderEntry, int, str]:
        """The entry at `at`, the place behind it and the mark that follows."""
        usual = _USUAL.match(self._text, at)
        if usual is not None:
            shape = tuple(map(int, filter(None, usual[2].split(",")))) if usual[2] else ()
            return self._checked(at, usual[1], shape, int(usual[3]), int(usual[4])), usual.end(), usual[5]
        found = _VALUE.match(self._text, at)
        if found is None:
            raise self._damaged(at, "expected an object with dtype, shape and data_offsets")
        try:
            value = json.loads(found[1], object_pairs_hook=_unique)
            dtype, shape, (start, end) = value["dtype"], value["shape"], value["data_offsets"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._damaged(at, "expected an object with dtype, shape and data_offsets") from error
        if not (isinstance(dtype, str) and isinstance(shape, list) and all(map(_is_size, [*shape, start, end]))):
            raise self._damaged(at, "expected a dtype, and non-negative integers in shape and data_offsets")
        return self._checked(at, dtype, tuple(shape), start, end), found.end(), found[2]

    def _checked(self, at: int, dtype: str, shape: tuple[int, ...], start: int, end: int) -> HeaderEntry:
        try:
            element_count(shape)
        except CorruptModel as error:
            raise self._damaged(at, error.message) from None
        if not start <= end < 1 << 63:
            raise self._damaged(at, f"the data_offsets {start} and {end} are invalid")
        return HeaderEntry(dtype, shape, start, end)

    def _read_metadata(self, at: int) -> tuple[int, str]:
        """Read `__metadata__` at `at`; the place behind it and the mark that follows."""
        empty = re.compile(rf"\{{{_SPACE}\}}{_SPACE}([,}}])").match(self._text, at)
        if empty is not None:
            return empty.end(), empty[1]
        if self._text[at : at + 1] != "{":
            raise self._damaged(at, "expected an object of strings in __metadata__")
        at, mark = at + 1, ","
        while mark == ",":
            found = _PAIR.match(self._text, at)
            if found is None:
                raise self._damaged(at, "expected a string for each key in __metadata__")
            self.metadata[_unescaped(found[1])] = _unescaped(found[2])
            if len(self.metadata) > _MOST_METADATA:
                raise LimitExceeded(f"__metadata__ has more than {_MOST_METADATA} keys", path=self._path)
            at, mark = found.end(), found[3]
        after = re.compile(rf"{_SPACE}([,}}])").match(self._text, at)
        if after is None:
            raise self._damaged(at, "expected a comma or the end of the header after __metadata__")
        return after.end(), after[1]

    def _damaged(self, at: int, why: str) -> CorruptModel:
        offset = PREFIX + len(self._text[:at].encode())
        return CorruptModel(f"The header of this safetensors file is damaged: {why}", offset, self._path)


def _header(source: RangeSource, path: str) -> tuple[str, int]:
    """The text of the header, and the offset of the elements."""
    if source.size < PREFIX:
        raise CorruptModel(f"A safetensors file has at least 8 bytes, but this one has {source.size}", 0, path)
    length = int.from_bytes(source.read(0, PREFIX), "little")
    if length > source.size - PREFIX:
        raise CorruptModel(f"The header takes {length} bytes, but the file has {source.size}", 0, path)
    if length > LARGEST_HEADER:
        raise LimitExceeded(f"A safetensors header may have at most {LARGEST_HEADER} bytes, not {length}", 0, path)
    try:
        text = source.read(PREFIX, length).decode()
    except UnicodeDecodeError as error:
        raise CorruptModel("The header of this safetensors file is not UTF-8", PREFIX + error.start, path) from None
    if text[:1] != "{":
        raise CorruptModel("The header of a safetensors file begins with {", PREFIX, path)
    return text, PREFIX + length


def _unescaped(text: str) -> str:
    return str(json.loads(f'"{text}"')) if "\\" in text else text


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found

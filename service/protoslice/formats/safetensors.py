"""Models in safetensors files: single files, shards with or without an index, and pipelines of diffusers."""

from __future__ import annotations

import json
import posixpath
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite, prod
from typing import Any, Final, NoReturn

from protoslice.detection.magic import INDEX_ENDING, PIPELINE, SAFETENSORS
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.messages import resolve_location
from protoslice.formats.weights import (
    ENDING,
    KIND,
    address_of,
    check_apart,
    check_count,
    joined,
    shard_facts,
    shards_of,
)
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.layout import checked
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Encoding, Model, Stored, Tensor, Unreadable
from protoslice.tensors.safetensors_file import METADATA, PADDING

LARGEST_ENTRY: Final = 1 << 20
"""Largest number of characters of the header entry that describes one tensor."""
LARGEST_HEADER: Final = 64 << 20
"""The byte limit of a header. The format allows 100 MB, but headers of real models take a few MB at most."""
PREFIX: Final = 8
"""The number of bytes before the header. They hold the header's length."""
_MOST_METADATA: Final = 1 << 16
_DTYPES: Final = {dtype.safetensors: dtype for dtype in DTYPES.values() if dtype.safetensors is not None}

_SPACE: Final = r"[ \t\r\n]*+"
_STRING: Final = r'"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)"'
_KEY: Final = re.compile(rf"{_SPACE}{_STRING}{_SPACE}:{_SPACE}")
_PAIR: Final = re.compile(rf"{_SPACE}{_STRING}{_SPACE}:{_SPACE}{_STRING}{_SPACE}([,}}])")
_MARK: Final = re.compile(rf"{_SPACE}([,}}])")
_SIZE: Final = "(?:0|[1-9][0-9]{0,17})"
_USUAL: Final = re.compile(
    rf'\{{"dtype":"([A-Z0-9_]{{1,20}})","shape":\[((?:{_SIZE}(?:,{_SIZE}){{0,99}})?)\],'
    rf'"data_offsets":\[({_SIZE}),({_SIZE})\]\}}([,}}])'
)
"""An entry in the spelling that all known writers use. Matching it is faster than the general parser."""

_END: Final = re.compile(rf"{_SPACE}\}}")
_NO_METADATA: Final = re.compile(rf"(?:null|\{{{_SPACE}\}}){_SPACE}([,}}])")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MEMBERS: Final = ["data_offsets", "dtype", "shape"]
_USUAL_ENTRY: Final = 4096
_DEEPEST: Final = 125
"""Largest number of levels of arrays and objects within an entry. The safetensors library has the same limit."""
_MAX_INT64: Final = (1 << 63) - 1
_MAX_UINT64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """The entry of one tensor in a header. `start` and `end` count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """A safetensors file and its header. The object keeps the header's text and the places of its entries."""

    def __init__(self, source: RangeSource, path: str, prefix: str = "") -> None:
        """Read and validate the header. `prefix` is added before the names of the tensors.

        Raise `CorruptModel` for a damaged header, and for tensors that overlap or leave gaps. Raise `LimitExceeded` for
        a header of more than 64 MiB.
        """
        self._source = source
        self._path = path
        self._prefix = prefix
        self._text, self._data = _header(source, path)
        self.metadata: dict[str, str] = {}
        """The texts in `__metadata__` by key."""
        found = self._scan()
        places = [(start, end, name) for name, (_, start, end) in found.items()]
        check_apart(places, path, dense=True)
        self._places = array("Q", (at for at, _, _ in found.values() if at >= 0))
        end = max((stop for _, stop, _ in places), default=0)
        if self._data + end < source.size:
            raise CorruptModel(f"{source.size - self._data - end} bytes follow the last tensor", self._data + end, path)

    def __len__(self) -> int:
        return len(self._places)

    def name(self, number: int) -> str:
        """Return the name of the tensor with this number. Numbers follow the order of the header."""
        found = _KEY.match(self._text, self._places[number])
        assert found is not None, "the scan has matched it"
        return self._prefix + self._unescaped(self._places[number], found[1])

    def entry(self, number: int) -> HeaderEntry:
        """Return the header's entry for the tensor with this number."""
        found = _KEY.match(self._text, self._places[number])
        assert found is not None, "the scan has matched it"
        return self._value(found.end())[0]

    def tensor(self, number: int) -> Tensor:
        """Return the tensor with this number.

        Its data is `Unreadable` if the elements reach beyond the end of the file or have an unknown type.
        """
        name, entry = self.name(number), self.entry(number)
        dtype = _DTYPES.get(entry.dtype)
        data: Data
        try:
            data = self._elements(name, entry, dtype)
        except CorruptModel as error:
            data = Unreadable(error)
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
        if prod(entry.shape) * dtype.bits % 8:
            raise CorruptModel(f"The elements of the tensor {name[:200]!r} do not fill whole bytes", start, self._path)
        encoding = Encoding.PACKED if dtype.narrow else Encoding.PLAIN
        return checked(Stored(Rope.of(self._source, start, end), encoding), dtype, entry.shape)

    def _scan(self) -> dict[str, tuple[int, int, int]]:
        """Return a map from names to places: an entry's place in the header, and the start and end of its elements.

        Padding has -1 as its place in the header. If several entries have the same name, the last entry counts.
        """
        text = self._text
        at = text.index("{") + 1
        found, faults = dict[str, tuple[int, int, int]](), dict[str, CorruptModel]()
        empty = _END.match(text, at)
        mark = "," if empty is None else "}"
        at, had_metadata = at if empty is None else empty.end(), False
        while mark == ",":
            key = _KEY.match(text, at)
            if key is None:
                raise self._damaged(at, "expected the name of a tensor in quotes, and a colon")
            name = self._unescaped(at, key[1])
            if name == METADATA:
                if had_metadata:
                    raise self._damaged(at, f"{METADATA} is repeated")
                at, mark, had_metadata = *self._read_metadata(key.end()), True
                continue
            entry, end, mark = self._value(key.end())
            is_padding = name.startswith(PADDING) and (entry.dtype, entry.shape) == ("U8", (entry.end - entry.start,))
            found[name] = (-1 if is_padding else at, entry.start, entry.end)
            check_count(len(found), self._path)
            faults.pop(name, None)
            if (why := _fault(entry)) is not None:
                faults[name] = self._damaged(key.end(), why)
            at = end
        if text[at:].strip(" \t\r\n"):
            raise self._damaged(at, "expected the end of the header")
        for fault in faults.values():
            raise fault
        return found

    def _value(self, at: int) -> tuple[HeaderEntry, int, str]:
        """Return the entry at `at`, the place after it, and the mark (a comma or a brace) that follows."""
        usual = _USUAL.match(self._text, at)
        if usual is not None:
            shape = tuple(map(int, usual[2].split(","))) if usual[2] else ()
            return HeaderEntry(usual[1], shape, int(usual[3]), int(usual[4])), usual.end(), usual[5]
        value, end = self._object(at)
        mark = _MARK.match(self._text, end)
        if mark is None:
            raise self._damaged(end, "expected a comma or the end of the header after a tensor")
        known = [pair for pair in value if pair[0] in _MEMBERS]
        if sorted(name for name, _ in known) != _MEMBERS:
            raise self._damaged(at, "expected an object with dtype, shape and data_offsets, each of them once")
        entry = dict(known)
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
            raise self._damaged(at, "expected a dtype, and non-negative integers in shape and data_offsets")
        return HeaderEntry(dtype, tuple(shape), *offsets), mark.end(), mark[1]

    def _object(self, at: int) -> tuple[_Members, int]:
        """Return the JSON object at `at`, and the place after it."""
        size = _USUAL_ENTRY
        while True:
            text = self._text[at : at + size]
            try:
                value, length = _DECODER.raw_decode(text)
                _check_json(value)
            except (ValueError, RecursionError) as error:
                if at + size >= len(self._text) or not _is_cut_off(text, error):
                    raise self._damaged(at, "expected an object with dtype, shape and data_offsets") from None
            else:
                if not isinstance(value, _Members):
                    raise self._damaged(at, "expected an object with dtype, shape and data_offsets")
                return value, at + length
            if size >= LARGEST_ENTRY:
                raise LimitExceeded(
                    f"The header has more than {LARGEST_ENTRY} characters about one tensor",
                    self._offset(at),
                    self._path,
                )
            size *= 4

    def _read_metadata(self, at: int) -> tuple[int, str]:
        """Read the `__metadata__` object at `at`; return the place after it and the mark that follows."""
        none = _NO_METADATA.match(self._text, at)
        if none is not None:
            return none.end(), none[1]
        if self._text[at : at + 1] != "{":
            raise self._damaged(at, f"expected an object of strings in {METADATA}")
        at, mark = at + 1, ","
        while mark == ",":
            found = _PAIR.match(self._text, at)
            if found is None:
                raise self._damaged(at, f"expected a string for each key in {METADATA}")
            self.metadata[self._unescaped(at, found[1])] = self._unescaped(at, found[2])
            if len(self.metadata) > _MOST_METADATA:
                raise LimitExceeded(f"{METADATA} has more than {_MOST_METADATA} keys", path=self._path)
            at, mark = found.end(), found[3]
        after = _MARK.match(self._text, at)
        if after is None:
            raise self._damaged(at, f"expected a comma or the end of the header after {METADATA}")
        return after.end(), after[1]

    def _unescaped(self, at: int, text: str) -> str:
        if "\\" not in text:
            return text
        found = str(json.loads(f'"{text}"'))
        if _SURROGATE.search(found):
            raise self._damaged(at, "a name is not valid text")
        return found

    def _damaged(self, at: int, why: str) -> CorruptModel:
        return CorruptModel(f"The header of this safetensors file is damaged: {why}", self._offset(at), self._path)

    def _offset(self, at: int) -> int:
        return PREFIX + len(self._text[:at].encode())


def _header(source: RangeSource, path: str) -> tuple[str, int]:
    """Return the text of the header, and the file offset of the elements."""
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
    if text.lstrip(" \t\r\n")[:1] != "{":
        raise CorruptModel("The header of this safetensors file does not begin with {", PREFIX, path)
    return text, PREFIX + length


def _fault(entry: HeaderEntry) -> str | None:
    """Return the problem of an entry, or None. Other entries are not considered."""
    count = 1
    for length in entry.shape:
        count *= length
        if count > _MAX_UINT64:  # an error even if a later length is 0
            return f"a tensor of {len(entry.shape)} dimensions has too many elements to address"
    try:
        element_count(entry.shape)
    except CorruptModel as error:
        return error.message
    return None if entry.start <= entry.end else f"the data_offsets {entry.start} and {entry.end} are invalid"


def _are_sizes(values: object) -> bool:
    return type(values) is list and all(type(each) is int and 0 <= each <= _MAX_INT64 for each in values)


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object in their order, including repeated members."""


def _is_cut_off(text: str, error: Exception) -> bool:
    """Return True when the parser may have failed only because `text` is cut off."""
    at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(text) - 16
    return at_end or str(error).startswith("Unterminated string")


def _check_json(value: Any, depth: int = 0) -> None:
    """Raise `ValueError` for lone surrogates and for deep nesting. Python's JSON parser accepts both."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, str) and _SURROGATE.search(value):
        raise ValueError("not valid text")
    if isinstance(value, (list, tuple)):
        deeper = depth + (not isinstance(value, tuple))
        for each in value:
            _check_json(each, deeper)


def _integer(text: str) -> int | float:
    """Return an integer of up to 64 bits as an int, and other integers as floats, like the safetensors library."""
    if len(text) <= 20 and text != "-0" and -_MAX_INT64 - 1 <= int(text) <= _MAX_UINT64:
        return int(text)
    return _float(text)


def _float(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError("a number is too large")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Members, parse_int=_integer, parse_float=_float, parse_constant=_refuse
)


_LARGEST_INDEX: Final = 64 << 20
_LARGEST_PIPELINE: Final = 1 << 20
_MOST_FILES: Final = 4096


class SafetensorsFormat:
    """The format of safetensors files."""

    name = "safetensors"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a safetensors file, a shard index, or the index of a pipeline."""
        return model.proto is None and model.type == SAFETENSORS and model.root in model.files

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of the model.

        A tensor of a pipeline has a name that begins with the folder of its component.
        """
        if posixpath.basename(model.root) == PIPELINE:
            return _of_pipeline(model)
        if model.root.endswith(INDEX_ENDING):
            return _of_index(model)
        return _joined({path: SafetensorsFile(model.file(path), path) for path in shards_of(model.root)})


def _of_index(model: Model) -> Tensors:
    """Return the tensors of all shards that an index names.

    The index may name tensors that no shard has. The data of these tensors is `Unreadable`.
    """
    declared = index_of(model.file(model.root), model.root)
    paths = sorted({resolve_location(model.root, each) for each in set(declared.values())})
    if len(paths) > _MOST_FILES:
        raise LimitExceeded(f"The index names {len(paths)} files, but a model may have at most {_MOST_FILES}")
    files = {path: SafetensorsFile(model.files[path], path) for path in paths if path in model.files}
    found = {part.name(number) for part in files.values() for number in range(len(part))}
    missing = {name: resolve_location(model.root, file) for name, file in declared.items() if name not in found}
    return _joined(files, missing)


def index_of(source: RangeSource, path: str) -> Mapping[str, str]:
    """Return the file of each tensor by the tensor's name; raise `CorruptModel` if the index is malformed."""
    found = _json(source, path, _LARGEST_INDEX).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        raise CorruptModel("The index needs a weight_map with the file of each tensor", path=path)
    return found


def _of_pipeline(model: Model) -> Tensors:
    """Return the tensors of all components of a pipeline, such as `unet/conv_in.weight`.

    The files of a component are in the folder with the component's name.
    """
    folders, files = dict[str, list[str]](), dict[str, SafetensorsFile]()
    for path in model.files:
        if path.endswith(ENDING):
            folders.setdefault(posixpath.dirname(path), []).append(path)
    folder = posixpath.dirname(model.root)
    names = [name for name, what in _json(model.file(model.root), model.root, _LARGEST_PIPELINE).items() if what]
    for name in names:
        for path in _of_one_variant(folders.get(posixpath.join(folder, name), ())):
            files[path] = SafetensorsFile(model.file(path), path, f"{name}/")
            if len(files) > _MOST_FILES:
                raise LimitExceeded(f"A pipeline may have at most {_MOST_FILES} files")
    return _joined(files) if files else Tensors.of(())


def _joined(files: Mapping[str, SafetensorsFile], missing: Mapping[str, str] | None = None) -> Tensors:
    """Return the tensors and the metadata of all files. Metadata keys with different values are left out."""
    metadata, unequal = dict[str, str](), set[str]()
    for file in files.values():
        unequal.update(key for key, text in file.metadata.items() if metadata.setdefault(key, text) != text)
    return joined(files, missing, {key: text for key, text in metadata.items() if key not in unequal})


def _of_one_variant(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the files to read. `paths` are the files of all variants of a component.

    Files without a variant are preferred. If all files belong to variants, such as `model.fp16`, the files of the first
    variant are taken. Paths of missing shards are yielded too.
    """
    variants = dict[str, dict[str, Counter[str]]]()
    for path in paths:
        stem, first, _ = shard_facts(path)
        name, _, variant = posixpath.basename(stem).partition(".")
        variants.setdefault(variant, {}).setdefault(name, Counter())[first] += 1

    def rank(shards: Counter[str], first: str) -> tuple[bool, int, str]:
        count = shard_facts(first)[2]
        return shards[first] < count, count, first

    for _, shards in sorted(variants[min(variants)].items()) if variants else ():
        # A model may be present in several splits, such as 2 and 5 shards. The smallest complete split is taken.
        yield from shards_of(min(shards, key=partial(rank, shards)))


def _json(source: RangeSource, path: str, most: int) -> dict[str, Any]:
    if source.size > most:
        raise LimitExceeded(f"{path} may have at most {most} bytes, but it has {source.size}", path=path)
    try:
        found = json.loads(source.read(0, source.size))
    except (ValueError, RecursionError) as error:
        raise CorruptModel(f"{path} is not valid JSON", path=path) from error
    if not isinstance(found, dict):
        raise CorruptModel(f"{path} is not a JSON object", path=path)
    return found

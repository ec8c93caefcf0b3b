"""References to tensors for fsspec (kerchunk version 1). They have zarr version 2 keys, with one chunk per tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from protoslice.errors import OF_MODELS
from protoslice.sources.source import RangeSource
from protoslice.tensors.listing import UniqueNames
from protoslice.tensors.model import Strings, Tensor, Unreadable
from protoslice.tensors.omitted import MOST_NAMED, Omitted
from protoslice.tensors.reading import ReadableTensor, npy_descr, place, read

_ODD: Final = re.compile(r"[\x00-\x1f\x7f%?#*\[\]{}\\\"<>|:]|//|^/|/$|(^|/)\.")
"""The characters and segments of names that have a special meaning for zarr or fsspec."""
_GROUP: Final = '{"zarr_format":2}'
_DEEPEST: Final = 32
"""Largest number of folders above an array. Each folder is a separate entry, and a name may consist of slashes."""


@dataclass(slots=True)
class _Shown:
    """A tensor that zarr can show: the metadata of the array, and the reference to its elements."""

    array: str
    address: str
    dtype: str
    rank: int
    place: list[object] | None


class References:
    """A builder of references to tensors. It leaves out tensors that zarr cannot show.

    If a file contains the elements as they are served, the reference is a range of `file_url(path)`. Otherwise the
    reference is `tensor_url(address)`.
    """

    def __init__(
        self,
        files: Mapping[str, RangeSource],
        *,
        file_url: Callable[[str], str],
        tensor_url: Callable[[str], str],
    ) -> None:
        self._files = files
        self._file_url = file_url
        self._tensor_url = tensor_url
        self._labels = UniqueNames()
        self._names: list[str] = []
        self._shown: list[_Shown] = []
        self._arrays: dict[str, str] = {}
        self._left_out = 0
        self._left_out_names: list[str] = []

    @property
    def omitted(self) -> Omitted | None:
        """The tensors without a reference; None if there are none."""
        return Omitted.of(self._left_out, self._left_out_names)

    def add(self, tensor: Tensor) -> None:
        """Append a reference to `tensor`. Leave out the tensor if zarr cannot show it or its elements are faulty."""
        reading = _reading(tensor)
        if reading is None:
            self._left_out += 1
            if self._left_out <= MOST_NAMED:
                self._left_out_names.append(tensor.name)
            return
        self._labels.add(tensor)
        self._names.append(tensor.name)
        array = _array(reading.as_bytes)
        rank = len(reading.as_bytes.shape)
        shown = _Shown(self._arrays.setdefault(array, array), tensor.address, reading.dtype.name, rank, None)
        if reading.bytes.size:
            lies = place(tensor, reading.bytes, self._files)
            at: list[object] = [self._tensor_url(tensor.address)]
            shown.place = at if lies is None else [self._file_url(lies.file), lies.offset, lies.length]
        self._shown.append(shown)

    def text(self) -> Iterator[bytes]:
        """Yield the references as JSON in pieces.

        One entry repeats the metadata of all arrays. zarr 3 and xarray need this entry, because they cannot list a
        group within references.
        """
        keys = _keys(list(self._labels.labels()))
        groups = list(dict.fromkeys(_groups(keys)))
        yield b'{"version":1,"refs":{%b' % ",".join(f"{_json(key)}:{_json(_GROUP)}" for key in groups).encode()
        yield b',".zmetadata":"'
        yield from (_json(piece)[1:-1].encode() for piece in self._consolidated(keys, groups))
        yield b'"'
        for name, key, shown in zip(self._names, keys, self._shown, strict=True):
            refs: dict[str, object] = {f"{key}/.zarray": shown.array, f"{key}/.zattrs": _about(name, key, shown)}
            if shown.place is not None:
                refs[f"{key}/{'.'.join('0' * shown.rank) or '0'}"] = shown.place
            yield f",{_json(refs)[1:-1]}".encode()
        yield b"}}"

    def _consolidated(self, keys: Sequence[str], groups: Sequence[str]) -> Iterator[str]:
        """Yield the metadata of all groups and arrays in sorted order.

        Zarr 3 recognizes the members of a group only if they follow each other.
        """
        numbers = {key: number for number, key in enumerate(keys)}
        yield f'{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{_GROUP}'
        for path in sorted([*keys, *(group.removesuffix("/.zgroup") for group in groups[1:])]):
            if (number := numbers.get(path)) is None:
                yield f",{_json(f'{path}/.zgroup')}:{_GROUP}"
            else:
                shown = self._shown[number]
                about = _about(self._names[number], path, shown)
                yield f",{_json(f'{path}/.zarray')}:{shown.array},{_json(f'{path}/.zattrs')}:{about}"
        yield "}}"


def references(
    tensors: Iterable[Tensor],
    files: Mapping[str, RangeSource],
    *,
    file_url: Callable[[str], str],
    tensor_url: Callable[[str], str],
) -> dict[str, object]:
    """Return the references to `tensors` as a JSON object; see `References`."""
    made = References(files, file_url=file_url, tensor_url=tensor_url)
    for tensor in tensors:
        made.add(tensor)
    found: dict[str, object] = json.loads(b"".join(made.text()))
    return found


def _reading(tensor: Tensor) -> ReadableTensor | None:
    """Return the elements of `tensor`; None for a tensor of strings and for a faulty tensor."""
    if isinstance(tensor.data, Strings | Unreadable):
        return None
    try:
        return read(tensor, compare=False)
    except OF_MODELS:
        return None


def _groups(keys: Sequence[str]) -> list[str]:
    """Return the keys of the entries for the root group and for all groups that contain arrays."""
    return [".zgroup", *(f"{above}/.zgroup" for key in keys for above in _above(key))]


def _about(name: str, key: str, shown: _Shown) -> str:
    # xarray requires names of dimensions. Equal names would require equal lengths, so each array has its own names.
    dimensions = [f"{key}[{axis}]" for axis in range(shown.rank)]
    return _json({"name": name, "address": shown.address, "dtype": shown.dtype, "_ARRAY_DIMENSIONS": dimensions})


def _array(reading: ReadableTensor) -> str:
    return _json({
        "zarr_format": 2, "shape": reading.shape, "chunks": [max(1, length) for length in reading.shape],
        "dtype": npy_descr(reading.dtype), "compressor": None, "filters": None, "fill_value": None, "order": "C",
    })  # fmt: skip


def _keys(names: Sequence[str]) -> list[str]:
    """Return a key for each name. Most names are their own key.

    A name is percent-encoded if it has special characters, is very deep, or lies within another name.
    """
    known = set(names)
    # zarr does not allow an array within another array: `a/b` is encoded if there is an array `a`.
    return [name if _is_plain(name) and known.isdisjoint(_above(name)) else _quoted(name) for name in names]


def _is_plain(name: str) -> bool:
    return bool(name) and name.count("/") <= _DEEPEST and not _ODD.search(name)


def _above(key: str) -> list[str]:
    return [key[:at] for at, letter in enumerate(key) if letter == "/"]


def _quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E") or "%"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

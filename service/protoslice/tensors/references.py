"""Tensors as fsspec references (kerchunk version 1) under zarr version 2 keys: one chunk per tensor."""

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
"""Characters and segments of a name with a special meaning for zarr or fsspec."""
_GROUP: Final = '{"zarr_format":2}'
_DEEPEST: Final = 32
"""Limit of folders above an array. Each is a separate entry: a name full of slashes has many."""


@dataclass(slots=True)
class _Shown:
    """A tensor that zarr can show, without its name: metadata of the array and the reference to its elements."""

    array: str
    address: str
    dtype: str
    rank: int
    place: list[object] | None


class References:
    """References to all added tensors that zarr can show.

    A tensor whose bytes are in a file unchanged is a reference into that file, with a URL from `file_url(path)`; all
    others refer to `tensor_url(address)`.
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
        """Tensors without a reference."""
        return Omitted.of(self._left_out, self._left_out_names)

    def add(self, tensor: Tensor) -> None:
        """Append a reference to `tensor`, unless zarr cannot show it or its elements are faulty."""
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
        """Yield the references as JSON, in pieces, with the metadata of all arrays in one entry too.

        zarr 3 and xarray need that entry: they cannot list a group within references.
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
        """Yield the metadata of all groups and arrays.

        Zarr 3 recognizes members of a group only if they follow each other.
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
    """Return the elements of `tensor`; None for strings and for faulty tensors."""
    if isinstance(tensor.data, Strings | Unreadable):
        return None
    try:
        return read(tensor, compare=False)
    except OF_MODELS:
        return None


def _groups(keys: Sequence[str]) -> list[str]:
    """Return the keys of the group entries above all arrays, the root's included."""
    return [".zgroup", *(f"{above}/.zgroup" for key in keys for above in _above(key))]


def _about(name: str, key: str, shown: _Shown) -> str:
    # xarray requires names of dimensions; each array has different ones, as lengths differ.
    dimensions = [f"{key}[{axis}]" for axis in range(shown.rank)]
    return _json({"name": name, "address": shown.address, "dtype": shown.dtype, "_ARRAY_DIMENSIONS": dimensions})


def _array(reading: ReadableTensor) -> str:
    return _json({
        "zarr_format": 2, "shape": reading.shape, "chunks": [max(1, length) for length in reading.shape],
        "dtype": npy_descr(reading.dtype), "compressor": None, "filters": None, "fill_value": None, "order": "C",
    })  # fmt: skip


def _keys(names: Sequence[str]) -> list[str]:
    """Return a key per name: the name itself, or a percent-encoded form for odd, deep and nested names."""
    known = set(names)
    # An array may not lie within another one: `a/b` is encoded if there is an `a`.
    return [name if _is_plain(name) and known.isdisjoint(_above(name)) else _quoted(name) for name in names]


def _is_plain(name: str) -> bool:
    return bool(name) and name.count("/") <= _DEEPEST and not _ODD.search(name)


def _above(key: str) -> list[str]:
    return [key[:at] for at, letter in enumerate(key) if letter == "/"]


def _quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E") or "%"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

"""Tensors as fsspec references (kerchunk version 1) under the keys of zarr version 2: one chunk a tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from protoslice.errors import OF_MODELS
from protoslice.formats.model import Fault, Strings, Tensor
from protoslice.formats.outputs import npy
from protoslice.formats.outputs.labels import labels
from protoslice.formats.tensors.reading import Reading, place, read
from protoslice.sources import RangeSource

__all__ = ["references"]

_ODD: Final = re.compile(r"[\x00-\x1f\x7f%?#*\[\]{}\\\"<>|:]|//|^/|/$|(^|/)\.")
"""What zarr or fsspec takes for something else than a part of a name."""
_DEEPEST: Final = 32
"""Each folder on the way to an array is an entry of its own: a name of nothing but folders would make many of them."""


def references(
    tensors: Iterable[Tensor],
    files: Mapping[str, RangeSource],
    *,
    file_url: Callable[[str], str],
    tensor_url: Callable[[str], str],
) -> dict[str, object]:
    """References to all `tensors` that zarr can show: into the file of one that lies there just as it is given out.

    All others are referred to by the URL under which they are given out. `file_url` makes one of a path, `tensor_url`
    of the address of a tensor.
    """
    shown = [(tensor, reading) for tensor in tensors if (reading := _reading(tensor)) is not None]
    keys = _keys(labels([tensor for tensor, _ in shown]))
    refs: dict[str, object] = dict.fromkeys(_groups(keys), _json({"zarr_format": 2}))
    for (tensor, reading), key in zip(shown, keys, strict=True):
        refs |= _array(tensor, reading, key)
        if reading.bytes.size:
            lies = place(tensor, reading.bytes, files)
            url = [tensor_url(tensor.address)] if lies is None else [file_url(lies.file), lies.offset, lies.length]
            refs[f"{key}/{'.'.join('0' * len(reading.shape)) or '0'}"] = url
    return {"version": 1, "refs": refs}


def _reading(tensor: Tensor) -> Reading | None:
    """Its elements; None where zarr cannot show them, or there are none to be had."""
    if isinstance(tensor.data, Strings | Fault):
        return None
    try:
        return read(tensor, compare=False)
    except OF_MODELS:
        return None


def _groups(keys: Sequence[str]) -> list[str]:
    """The keys that say which groups there are."""
    return [".zgroup", *(f"{above}/.zgroup" for key in keys for above in _above(key))]


def _array(tensor: Tensor, reading: Reading, key: str) -> dict[str, object]:
    array = {
        "zarr_format": 2, "shape": reading.shape, "chunks": [max(1, length) for length in reading.shape],
        "dtype": npy.descr(reading.dtype), "compressor": None, "filters": None, "fill_value": None, "order": "C",
    }  # fmt: skip
    about = {"name": tensor.name, "address": tensor.address, "dtype": reading.dtype.name}
    return {f"{key}/.zarray": _json(array), f"{key}/.zattrs": _json(about)}


def _keys(names: Sequence[str]) -> list[str]:
    """A key for each of `names`: the name itself, but for odd and deep ones, and such as would lie within another."""
    known = set(names)
    return [name if _is_plain(name) and known.isdisjoint(_above(name)) else _quoted(name) for name in names]


def _is_plain(name: str) -> bool:
    return bool(name) and name.count("/") <= _DEEPEST and not _ODD.search(name)


def _above(key: str) -> list[str]:
    return [key[:at] for at, letter in enumerate(key) if letter == "/"]


def _quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E") or "%"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

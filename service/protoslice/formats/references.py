"""Tensors as fsspec references (kerchunk version 1) under the keys of zarr version 2: one chunk a tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from protoslice.errors import ProtosliceError
from protoslice.formats import npy
from protoslice.formats.labels import labels
from protoslice.formats.model import Fault, Strings, Tensor
from protoslice.formats.reading import place, read
from protoslice.sources import RangeSource

__all__ = ["references"]

_ODD: Final = re.compile(r"[\x00-\x1f\x7f%?#*\[\]{}\\\"<>|:]|//|^/|/$|(^|/)\.")
"""What zarr or fsspec takes for something else than a part of a name."""


def references(
    tensors: Iterable[Tensor],
    files: Mapping[str, RangeSource],
    *,
    file_url: Callable[[str], str],
    tensor_url: Callable[[str], str],
) -> dict[str, object]:
    """References to all `tensors` that zarr can show.

    They lead into the file where a tensor lies there just as it is, else to where it is given out by the service.
    `file_url` is given a path, `tensor_url` the address of a tensor.
    """
    listed = [tensor for tensor in tensors if _showable(tensor)]
    keys = _keys(labels(listed))
    refs: dict[str, object] = {".zgroup": _json({"zarr_format": 2})}
    for key in keys:
        for cut in range(len(key)):
            if key[cut] == "/":
                refs[f"{key[:cut]}/.zgroup"] = refs[".zgroup"]
    for tensor, key in zip(listed, keys, strict=True):
        shape = tensor.shape or ()
        refs |= _array(tensor, key, shape)
        if tensor.size:
            lies = place(tensor, files)
            chunk = ".".join("0" * len(shape)) or "0"
            url = tensor_url(tensor.address) if lies is None else file_url(lies.file)
            refs[f"{key}/{chunk}"] = [url] if lies is None else [url, lies.offset, lies.length]
    return {"version": 1, "refs": refs}


def _showable(tensor: Tensor) -> bool:
    if isinstance(tensor.data, Strings | Fault):
        return False
    try:
        read(tensor)
    except ProtosliceError:
        return False
    return True


def _array(tensor: Tensor, key: str, shape: Sequence[int]) -> dict[str, object]:
    dtype = tensor.dtype
    assert dtype is not None  # `_showable` has seen to it
    array = {
        "zarr_format": 2, "shape": shape, "chunks": [max(1, length) for length in shape], "dtype": npy.descr(dtype),
        "compressor": None, "filters": None, "fill_value": None, "order": "C",
    }  # fmt: skip
    about = {"name": tensor.name, "address": tensor.address, "dtype": dtype.name}
    return {f"{key}/.zarray": _json(array), f"{key}/.zattrs": _json(about)}


def _keys(names: Sequence[str]) -> list[str]:
    """A key for each of `names`: the name, where nothing in the tree of keys gets into its way."""
    above = {name[:cut] for name in names for cut in range(len(name)) if name[cut] == "/"}
    plain = {name for name in names if not (_ODD.search(name) or name in above or not name)}
    return [name if name in plain and not _under(name, plain) else quote(name, safe="") or "%" for name in names]


def _under(name: str, plain: set[str]) -> bool:
    return any(name[:cut] in plain for cut in range(len(name)) if name[cut] == "/")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

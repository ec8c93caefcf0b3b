"""Tensors as the rows of a listing."""

from __future__ import annotations

import json
from typing import Any

from protoslice.formats.model import Fault, Tensor

__all__ = ["row", "row_text"]


def row(tensor: Tensor) -> dict[str, Any]:
    """What a listing says of `tensor`."""
    shown: dict[str, Any] = {
        "name": tensor.name,
        "address": tensor.address,
        "dtype": tensor.dtype.name if tensor.dtype is not None else None,
        "shape": tensor.shape,
        "size": tensor.size,
        "file": tensor.file,
        "kind": tensor.kind,
    }
    if isinstance(tensor.data, Fault):
        shown["problem"] = str(tensor.data.error)
    return shown


def row_text(tensor: Tensor) -> bytes:
    """The same as JSON."""
    return json.dumps(row(tensor), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")

"""Tensors as the rows of a listing."""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable

from protoslice.formats.model import Fault, Tensor, Tensors

__all__ = ["Listing", "items", "row", "row_text"]


@runtime_checkable
class Listing(Protocol):
    """Tensors that list themselves, faster than one by one."""

    def items(self, start: int, limit: int, dtype: str | None = None) -> tuple[bytes, int, int]:
        """What `items` gives."""


def items(found: Tensors, start: int, limit: int, dtype: str | None = None) -> tuple[bytes, int, int]:
    """At most `limit` tensors from `start` on as items of a JSON list; how many, and where to go on.

    Only those of type `dtype`, if one is given.
    """
    if isinstance(found, Listing):
        return found.items(start, limit, dtype)
    texts: list[bytes] = []
    number = start
    while number < len(found) and len(texts) < limit:
        tensor = found[number]
        number += 1
        if dtype is None or (tensor.dtype is not None and tensor.dtype.name == dtype):
            texts.append(row_text(tensor))
    return b",".join(texts), len(texts), number


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

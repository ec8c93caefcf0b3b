"""Tensors as JSON rows of a listing, page by page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

from protoslice.facts import TensorEntry
from protoslice.formats.model import Fault, Tensor, Tensors

PAGE_BYTES: Final = 1 << 20
Encode = Callable[[TensorEntry], bytes]
"""A function that encodes an entry as JSON, as `entry_text` does; a service has a faster one."""
_AT_ONCE: Final = 64
"""Rows asked of a `Listing` at once: implementations do not apply the limit of bytes."""


def entry_text(entry: TensorEntry) -> bytes:
    """Return an entry as JSON, `problem` only if there is one."""
    return json.dumps(_members(entry), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


@runtime_checkable
class Listing(Protocol):
    """Tensors with a listing of their own, faster than row by row."""

    def items(
        self, start: int, limit: int, dtype: str | None = None, encode: Encode = entry_text
    ) -> tuple[bytes, int, int]:
        """Return a page of the listing; see `items`."""


def items(
    found: Tensors, start: int, limit: int, dtype: str | None = None, encode: Encode = entry_text
) -> tuple[bytes, int, int]:
    """Return a page of at most `limit` tensors from `start` on.

    Returns its rows as items of a JSON list, their count, and the `start` of the next page. Holds only tensors of type
    `dtype`, if given, and ends early at about a mebibyte of text.
    """
    texts: list[bytes] = []
    number, count, size = start, 0, 0
    while number < len(found) and count < limit and size < PAGE_BYTES:
        text, more, number = _some(found, number, min(limit - count, _AT_ONCE), dtype, encode)
        texts += [text] if more else []
        count, size = count + more, size + len(text)
    return b",".join(texts), count, number


def _some(found: Tensors, start: int, limit: int, dtype: str | None, encode: Encode) -> tuple[bytes, int, int]:
    if isinstance(found, Listing):
        return found.items(start, limit, dtype, encode)
    texts: list[bytes] = []
    size, number = 0, start
    while number < len(found) and len(texts) < limit and size < PAGE_BYTES:
        tensor = found[number]
        number += 1
        if dtype is None or (tensor.dtype is not None and tensor.dtype.name == dtype):
            texts.append(encode(entry_of(tensor)))
            size += len(texts[-1])
    return b",".join(texts), len(texts), number


def entry_of(tensor: Tensor) -> TensorEntry:
    """The facts of `tensor` as a `TensorEntry`."""
    use = tensor.use
    return TensorEntry(
        name=tensor.name,
        address=tensor.address,
        dtype=tensor.dtype.name if tensor.dtype is not None else None,
        shape=tensor.shape,
        size=tensor.size,
        file=tensor.file,
        role=use.role,
        kind=use.kind,
        problem=str(tensor.data.error) if isinstance(tensor.data, Fault) else None,
    )


def row(tensor: Tensor) -> dict[str, Any]:
    """The facts of `tensor` as members of a JSON object, `problem` only if there is one."""
    return _members(entry_of(tensor))


def _members(entry: TensorEntry) -> dict[str, Any]:
    shown = {name: getattr(entry, name) for name in TensorEntry.__slots__}
    if shown["problem"] is None:
        del shown["problem"]
    return shown


def row_text(tensor: Tensor) -> bytes:
    """The row of `tensor` as JSON."""
    return entry_text(entry_of(tensor))

"""Facts of tensors, as rows of listings."""

from __future__ import annotations

from typing import Any, Final

from protoslice.facts import TensorEntry
from protoslice.formats.model import Fault, Tensor

_ALONE: Final = 120
_LENGTH: Final = 6
"""Bytes of JSON for an entry without its texts, and for each length in its shape."""


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


def entry_weight(entry: TensorEntry) -> int:
    """Return the bytes of JSON of `entry`, about."""
    texts = (entry.name, entry.address, entry.file or "", entry.problem or "")
    return _ALONE + sum(map(len, texts)) + _LENGTH * len(entry.shape or ())


def row(tensor: Tensor) -> dict[str, Any]:
    """The facts of `tensor` as members of a JSON object, `problem` only if there is one."""
    entry = entry_of(tensor)
    shown = {name: getattr(entry, name) for name in TensorEntry.__slots__}
    if shown["problem"] is None:
        del shown["problem"]
    return shown

"""Names under which several tensors fit into one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from protoslice.formats.model import Tensor

__all__ = ["labels"]


def labels(tensors: Sequence[Tensor], reserved: Collection[str] = ()) -> list[str]:
    """A name for each tensor that no other has and UTF-8 can write: its own, or its address where it shares that."""
    counts = Counter(tensor.name for tensor in tensors)
    taken = {*reserved, *counts}
    found: list[str] = []
    for tensor in tensors:
        name = tensor.name
        if counts[name] > 1 or name in reserved or _spelled(name) != name:
            name = _spelled(tensor.address)
            while name in taken:
                name += "'"
            taken.add(name)
        found.append(name)
    return found


def _spelled(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()

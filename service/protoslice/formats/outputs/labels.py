"""Unique names for the tensors of one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from protoslice.formats.model import Tensor


class Labels:
    """Names of tensors in order, and a unique label for each once all are known."""

    def __init__(self, reserved: Collection[str] = ()) -> None:
        """`reserved`: labels that no tensor gets."""
        self._reserved = frozenset(reserved)
        self._names: list[str] = []
        self._addresses: list[str | None] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, tensor: Tensor) -> None:
        """Append the name and the address of `tensor`."""
        self._names.append(tensor.name)
        self._addresses.append(None if tensor.address == f"path:{tensor.name}" else tensor.address)

    def labels(self) -> Iterator[str]:
        """A unique label per tensor, encodable in UTF-8: the name, or the address where the name is shared."""
        counts = Counter(self._names)
        taken = {*self._reserved, *counts}
        for name, address in zip(self._names, self._addresses, strict=True):
            label = name
            if counts[name] > 1 or name in self._reserved or _spelled(name) != name:
                label = _spelled(f"path:{name}" if address is None else address)
                while label in taken:
                    label += "'"
                taken.add(label)
            yield label


def _spelled(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()

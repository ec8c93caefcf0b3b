"""Bypass of `file://`: direct access to the directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw


class RawFiles(Raw):
    """Objects as plain files below `root`."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    async def get(self, key: ObjectKey) -> bytes | None:
        path = self._root / key.text
        return path.read_bytes() if path.is_file() else None

    async def set(self, key: ObjectKey, data: bytes) -> None:
        """See `Raw.set`; replaces by renaming."""
        path = self._root / key.text
        path.parent.mkdir(parents=True, exist_ok=True)
        spare = path.with_name(path.name + ".raw")
        spare.write_bytes(data)
        spare.rename(path)

    async def remove(self, key: ObjectKey) -> None:
        (self._root / key.text).unlink()

    async def names(self) -> Sequence[str]:
        """See `Raw.names`; temporary files count."""
        return sorted(str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())

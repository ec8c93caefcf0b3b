"""Folders whose names are known to be durable, so that they are not synced again. Calls block."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

_MOST: Final = 128
"""Folders that are known, each of which takes a descriptor."""


class KnownFolders:
    """The folders that were last seen to be durable, by inode.

    Each is kept open, so that no other folder gets its inode. Folders are never renamed: one that was synced into its
    parent stays there for as long as it exists.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._descriptors: dict[tuple[int, int], int] = {}
        """Descriptors, the folder that was used last at the end."""
        self._closed = False

    def sync(self, chain: Sequence[int]) -> None:
        """Make the entries of the last folder of `chain` durable, and each folder in the one before it."""
        named = [_inode(folder) for folder in chain]
        for depth in range(len(chain) - 1, -1, -1):
            if depth + 1 == len(chain) or not self._knows(named[depth + 1]):
                os.fsync(chain[depth])
        for name, folder in zip(named[1:], chain[1:], strict=True):
            self._learn(name, folder)

    def close(self) -> None:
        """Close the descriptors; nothing is learned any more."""
        with self._mutex:
            self._closed = True
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    def _knows(self, name: tuple[int, int]) -> bool:
        with self._mutex:
            return name in self._descriptors

    def _learn(self, name: tuple[int, int], folder: int) -> None:
        with self._mutex:
            if self._closed:
                return
            known = self._descriptors.pop(name, None)
            self._descriptors[name] = os.dup(folder) if known is None else known
            if len(self._descriptors) > _MOST:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))


def _inode(folder: int) -> tuple[int, int]:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino

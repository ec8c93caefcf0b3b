"""Defaults that several rooms share: each number stands here once."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_CHUNK", "MIN_CHUNK"]

MIN_CHUNK: Final = 1 << 20
"""Bytes from which on a field becomes a chunk of its own."""
MAX_CHUNK: Final = 1 << 30
"""Bytes at which runs of repeated elements are cut into chunks."""

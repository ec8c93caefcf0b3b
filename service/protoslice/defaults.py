"""Defaults that several rooms share: each number stands here once."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_CHUNK", "MAX_UPLOAD", "MIN_CHUNK"]

MIN_CHUNK: Final = 1 << 20
"""Bytes from which on a field becomes a chunk of its own."""
MAX_CHUNK: Final = 1 << 30
"""Bytes at which runs of repeated elements are cut into chunks."""
MAX_UPLOAD: Final = 1 << 40
"""Bytes of an upload, however it comes, with all that its files decode to."""

"""Memory of the C library: what a piece of an answer took is used again instead of going back to the kernel."""

from __future__ import annotations

import ctypes
from typing import Final

KEPT: Final = 32 << 20
"""Bytes of free memory that the process keeps: by default 128 KiB, so each answer of some MiB costs page faults."""
_FROM_KERNEL: Final = 32 << 20
"""Bytes of the least block that comes from the kernel directly: the most that glibc allows, as reads are smaller."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Have glibc keep freed memory; return False where the C library is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _FROM_KERNEL)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT))

"""Sizes of chunks that protobuf runtimes cannot parse."""

from __future__ import annotations

from protoslice.defaults import LARGEST_MESSAGE


class LargeChunkWarning(UserWarning):
    """Chunks that no protobuf runtime parses."""


def size_problem(path: str, size: int) -> str | None:
    """Return the problem of a chunk that protobuf runtimes cannot parse; None for others."""
    if size <= LARGEST_MESSAGE:
        return None
    return (
        f"chunk {path or '(remainder)'} has {size} bytes, but protobuf runtimes parse at most "
        f"{LARGEST_MESSAGE}: lower max_chunk or add a rule to split it further (a single value cannot be "
        "split: read it by byte range)"
    )

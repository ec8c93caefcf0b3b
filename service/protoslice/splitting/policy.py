"""Limits of splits: sizes of chunks and nesting depth."""

from __future__ import annotations

from dataclasses import dataclass

from protoslice.defaults import LARGEST_MESSAGE, MAX_CHUNK, MIN_CHUNK
from protoslice.errors import InvalidInput

__all__ = ["LARGEST_MESSAGE", "SplitPolicy"]


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """Limits of a split, sizes in bytes; `InvalidInput` when the sizes contradict each other.

    Parts of at least `min_chunk` leave the message, runs of repeated elements are cut at `max_chunk`, and messages nest
    at most `depth` levels.
    """

    min_chunk: int = MIN_CHUNK
    max_chunk: int = MAX_CHUNK
    depth: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.min_chunk <= self.max_chunk <= LARGEST_MESSAGE:
            sizes = f"min_chunk {self.min_chunk} and max_chunk {self.max_chunk}"
            raise InvalidInput(
                f"Invalid chunk sizes {sizes}: they must satisfy 1 <= min_chunk <= max_chunk <= {LARGEST_MESSAGE}"
            )
        if self.depth < 1:
            raise InvalidInput(f"Invalid depth {self.depth}: use at least 1")

    @classmethod
    def greedy(cls, max_chunk: int = MAX_CHUNK, depth: int = 100) -> SplitPolicy:
        """Policy of TensorFlow's splitters: parts over a third of `max_chunk` are split out."""
        return cls(min_chunk=max_chunk // 3 + 1, max_chunk=max_chunk, depth=depth)

"""Plan of a split as a value: the chunks of a message by path, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protoslice.splitting.planning.shape import Shape
from protoslice.splitting.tags import Key, Path


@dataclass(frozen=True, slots=True)
class Run:
    """Elements of a repeated field by index, or entries of a map by key, as one chunk.

    The chunk has the type of the message that holds the field.
    """

    field: Shape
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Entry:
    """Planned chunk of `size` bytes: the part at `path`, or, with an empty path, a run.

    `inside` holds the chunks taken out of this chunk.
    """

    path: Path
    size: int
    run: Run | None = None
    inside: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Chunks of a message, and the size of the remaining message in bytes."""

    size: int
    entries: tuple[Entry, ...]

    @property
    def at_most(self) -> int:
        """Upper bound for the size of the whole message in bytes."""
        return self.size + sum(map(_bound, self.entries))


def _bound(entry: Entry) -> int:
    return entry.size + 16 * (len(entry.path) + 1) + sum(map(_bound, entry.inside))

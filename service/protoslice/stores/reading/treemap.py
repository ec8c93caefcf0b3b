"""Treemaps: the largest parts below a path, nested, and how many smaller ones each leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.errors import InvalidInput
from protoslice.facts import Node
from protoslice.library.proto import node_at
from protoslice.stores.paging import PageBudget
from protoslice.stores.reading.tree import weight_of

MOST_CELLS: Final = 1000
"""Nodes of a treemap, at most."""
_EACH: Final = 250
"""Children shown of one node, at most."""


@dataclass(slots=True)
class _Cell:
    """A node of the treemap in the making."""

    node: Node
    depth: int
    """Levels that may follow below."""
    children: list[_Cell] = field(default_factory=list)
    total: int | None = None
    """Number of all children; None until the node is opened."""

    def finished(self) -> Node:
        if self.total is None:
            return self.node
        children = tuple(child.finished() for child in self.children)
        return replace(self.node, children=children, more=self.total - len(children))


def treemap_job(document: _core.Document, path: str, depth: int, min_share: float) -> Job[Node]:
    """Return the node at `path` with its parts; a slice of work opens one node.

    The largest node is opened first, so that a treemap that is full has the details where the bytes are. Parts of less
    than `min_share` of the bytes at `path` are left out; `more` of the node above counts them.
    """
    if not 0 <= min_share <= 1:
        raise InvalidInput("Invalid min_share: use a share of the whole, from 0 to 1")
    _, (kind, type_name, size, parts) = document.heaviest(path, 0, 0)
    if not parts:  # a value
        size = document.view(path)[2].size
    root = Node(path, 0, None, kind, type_name, None, size, parts > 0, None)
    room, least = PageBudget(MOST_CELLS), max(1, int(root.size * min_share))
    top = _Cell(root, depth)
    waiting, number = [(0, 0, top)], 0
    while waiting and room.left:
        _, _, cell = heappop(waiting)
        rows, (*_, cell.total) = document.heaviest(cell.node.path, min(_EACH, room.left), least)
        for row in rows:
            if not room.takes(weight_of(cell.node.path, row)):
                break
            child = _Cell(node_at(cell.node.path, row), cell.depth - 1)
            cell.children.append(child)
            if child.node.deeper and child.depth > 0:
                number += 1
                heappush(waiting, (-child.node.size, number, child))
        yield
    return top.finished()

"""The tree below a path of a store's root, bounded by the room of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from protoslice import _core
from protoslice.facts import Node
from protoslice.library import node_at
from protoslice.stores.paging import PageRoom

__all__ = ["nodes_below"]

_ROWS: Final = 32
"""Rows that the engine makes in one call: the name of a type, which every row holds, may be long."""
_NODE_WEIGHT: Final = 120
"""Bytes of JSON that a node takes beside its texts, about."""


def nodes_below(
    document: _core.Document, path: str, first: int, depth: int, room: PageRoom
) -> tuple[Sequence[Node], int]:
    """The nodes directly below `path` from number `first` on that `room` takes; and the number of all.

    With a depth beyond 1, `room` then goes to the children of these nodes, one after the other. Blocks.
    """
    rows, total = _rows(document, path, first, room)
    nodes = [node_at(path, row) for row in rows]
    return [_expanded(document, node, depth, room) for node in nodes], total


def _expanded(document: _core.Document, node: Node, depth: int, room: PageRoom) -> Node:
    if not node.deeper or depth == 1 or room.left <= 0:
        return node
    children, total = nodes_below(document, node.path, 0, depth - 1, room)
    return replace(node, children=tuple(children), more=total - len(children))


def _rows(document: _core.Document, path: str, first: int, room: PageRoom) -> tuple[list[tuple[Any, ...]], int]:
    rows: list[tuple[Any, ...]] = []
    while True:
        some, total = document.children(path, first + len(rows), min(room.left, _ROWS))
        for row in some:
            if not room.takes(_NODE_WEIGHT + len(path) + sum(len(part) for part in row if isinstance(part, str))):
                return rows, total
            rows.append(row)
        if not some or not room.left or first + len(rows) >= total:
            return rows, total

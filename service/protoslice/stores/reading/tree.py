"""Nodes below a path of a store's root, one bounded page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from protoslice.facts import Node
from protoslice.library.documents import Document
from protoslice.library.proto import node_at
from protoslice.stores.paging import PageBudget

_ROWS: Final = 32
"""Rows per call of the core: each holds a type name, which may be long."""
_NODE_WEIGHT: Final = 120
"""Bytes of JSON per node beside its texts, about."""


def nodes_below(document: Document, path: str, first: int, depth: int, room: PageBudget) -> tuple[Sequence[Node], int]:
    """Nodes directly below `path` from number `first` on, as `room` allows, and the number of all. Blocks.

    With a depth beyond 1, the children of these nodes take the rest of `room`, one node after the other.
    """
    rows, total = _rows(document, path, first, room)
    nodes = [node_at(path, row) for row in rows]
    return [_expanded(document, node, depth, room) for node in nodes], total


def _expanded(document: Document, node: Node, depth: int, room: PageBudget) -> Node:
    if not node.deeper or depth == 1 or room.left <= 0:
        return node
    children, total = nodes_below(document, node.path, 0, depth - 1, room)
    return replace(node, children=tuple(children), more=total - len(children))


def _rows(document: Document, path: str, first: int, room: PageBudget) -> tuple[list[tuple[Any, ...]], int]:
    rows: list[tuple[Any, ...]] = []
    while True:
        some, total = document.children(path, first + len(rows), min(room.left, _ROWS))
        for row in some:
            if not room.takes(weight_of(path, row)):
                return rows, total
            rows.append(row)
        if not some or not room.left or first + len(rows) >= total:
            return rows, total


def weight_of(path: str, row: tuple[Any, ...]) -> int:
    """Bytes of JSON of a child of `path`, about, given the engine's `row` of it."""
    return _NODE_WEIGHT + len(path) + sum(len(part) for part in row if isinstance(part, str))

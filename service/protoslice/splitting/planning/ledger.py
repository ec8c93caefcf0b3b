"""Ordered chunks of a split, and the tree of their places in the message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from protoslice.errors import InvalidInput
from protoslice.splitting.metadata import chunked_message
from protoslice.splitting.planning.draft import LazyChunk


@dataclass(slots=True)
class LedgerNode:
    """Chunk and its place below the parent node; the root has no tags and may have no chunk."""

    tags: Sequence[Any] = ()
    piece: LazyChunk | None = None
    below: list[LedgerNode] = field(default_factory=list)


class Ledger:
    """Numbered chunks. Nodes identify chunks, so one message may be added twice."""

    def __init__(self, *, with_base: bool) -> None:
        self.root = LedgerNode()
        self._order: list[LedgerNode] = [self.root] if with_base else []

    @property
    def with_base(self) -> bool:
        """True when the message itself is one of the chunks."""
        return any(node is self.root for node in self._order)

    def add(
        self, parent: LedgerNode, tags: Sequence[Any], piece: LazyChunk | None = None, *, index: int | None = None
    ) -> LedgerNode:
        """Add a chunk at the end, or before chunk `index`, which renumbers the chunks behind.

        `InvalidInput` for an `index` beyond the number of chunks.
        """
        node = LedgerNode(tags, piece)
        if index is None:
            self._order.append(node)
        elif 0 <= index <= len(self._order):
            self._order.insert(index, node)
        else:
            raise InvalidInput(f"Cannot insert a chunk at {index}: there are {len(self._order)} chunks")
        parent.below.append(node)
        return node

    def pieces(self) -> list[LazyChunk]:
        """The chunks in order."""
        return [node.piece for node in self._order if node.piece is not None]

    def message(self) -> Any:
        """`ChunkedMessage` of the tree."""
        numbers = {id(node): number for number, node in enumerate(self._order)}
        message = chunked_message()
        _fill(message, self.root, numbers)
        return message


def _fill(message: Any, node: LedgerNode, numbers: dict[int, int]) -> None:
    if id(node) in numbers:
        message.chunk_index = numbers[id(node)]
    for child in node.below:
        added = message.chunked_fields.add()
        added.field_tag.extend(child.tags)
        _fill(added.message, child, numbers)

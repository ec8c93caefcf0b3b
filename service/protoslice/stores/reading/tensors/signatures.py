"""Pages of the signatures of a store's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protoslice.facts import Signature
from protoslice.formats.signatures import signatures_in
from protoslice.stores.paging import PageBudget, ResultPage, first_item
from protoslice.tensors.model import Model

_GRAPH_BITS: Final = 32
"""A cursor is the number of a meta graph, followed by that of a signature in so many bits."""
_READ: Final = 4 << 20
"""Bytes of signatures looked at for one page."""
_GRAPH_WEIGHT: Final = 64 << 10
"""Bytes that a meta graph counts for at least: it takes a few reads."""
_TENSOR_WEIGHT: Final = 80


def signatures_page(model: Model, tags: Sequence[str] | None, limit: int, cursor: str | None) -> ResultPage[Signature]:
    """A page of signatures, meta graph by meta graph. Blocks.

    With `tags`, only the first meta graph with exactly these is listed. A page without items may have a next one:
    only so many meta graphs are looked at for each.
    """
    place = first_item(cursor)
    (count, read), first = signatures_in(model, tags), place >> _GRAPH_BITS
    room, items, left, skipped = PageBudget(limit), list[Signature](), _READ, place & (1 << _GRAPH_BITS) - 1
    for number in range(first, count):
        if left <= 0:
            return ResultPage(items, str(number << _GRAPH_BITS))
        found, size = read(number)
        left -= max(size, _GRAPH_WEIGHT)
        for at in range(skipped, len(found)):
            if not room.takes(_weight(found[at])):
                return ResultPage(items, str(number << _GRAPH_BITS | at))
            items.append(found[at])
        skipped = 0
    return ResultPage(items)


def _weight(signature: Signature) -> int:
    texts = len(signature.name) + len(signature.method) + sum(map(len, signature.tags))
    for tensor in (*signature.inputs, *signature.outputs):
        texts += _TENSOR_WEIGHT + len(tensor.name) + len(tensor.tensor or "") + 8 * len(tensor.shape or ())
    return _TENSOR_WEIGHT + texts

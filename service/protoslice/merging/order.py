"""Order in which the chunks of a file are merged: TensorFlow's, made total."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeAlias

from protoslice.errors import InconsistentChunks

_Rank: TypeAlias = tuple[int, int, Any]


def merge_order(fields: Iterable[Any]) -> list[Any]:
    """Sorted `fields`: parts of the message itself first, parents before children, elements by index.

    Equal places are ordered by chunk number, then as listed. `InconsistentChunks` when tags of different kinds stand at
    one place.
    """
    keyed = [([_rank(tag) for tag in field.field_tag], field.message.chunk_index, field) for field in fields]
    keyed.sort(key=lambda each: each[:2])
    for (before, _, _), (after, _, _) in pairwise(keyed):
        differing = next(((a, b) for a, b in zip(before, after, strict=False) if a != b), None)
        if differing is not None and differing[0][0] != differing[1][0]:
            raise InconsistentChunks(
                "Two chunked fields have tags of different kinds (field, index or map key) at the same place"
            )
    return [field for _, _, field in keyed]


def _rank(tag: Any) -> _Rank:
    kind = tag.WhichOneof("kind")
    if kind == "map_key":
        key = tag.map_key
        name = key.WhichOneof("type")
        return (2, 1, key.s) if name == "s" else (2, 0, -1 if name is None else getattr(key, name))
    return (1, 0, tag.index) if kind == "index" else (0, 0, tag.field if kind else -1)

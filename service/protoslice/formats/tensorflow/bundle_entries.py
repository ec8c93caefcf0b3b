"""Entries of a tensor bundle: the places of tensors and of their slices, as the index tells them."""

from __future__ import annotations

from collections.abc import Sequence

Entry = tuple[int, tuple[int, ...] | None, int, int, int, int | None]
"""Type, shape, shard, offset in the shard, size, masked checksum; shape and checksum may be None."""

Slices = Sequence[tuple[list[tuple[int, int | None]], Entry | None]]
"""Start and length in each dimension (None for all of it), and the entry; None if absent."""


def details_of(entry: Entry, slices: Slices) -> dict[str, object]:
    """Shard, offset, size and masked checksum of an entry, or those of each slice, as JSON."""
    if not slices:
        return _place(entry)
    parts = []
    for extents, part in slices:
        boxes = [{"start": start, "length": length} for start, length in extents]
        parts.append({"extents": boxes} | (_place(part) if part is not None else {}))
    return {"slices": parts}


def _place(entry: Entry) -> dict[str, object]:
    return {"shard": entry[2], "offset": entry[3], "size": entry[4], "crc32c": entry[5]}

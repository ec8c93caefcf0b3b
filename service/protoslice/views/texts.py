"""JSON and rendered messages of views, and the heads (facts without bytes) of costly views; both are cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from protoslice.catalog.derived import LARGEST_ROW
from protoslice.errors import ProtosliceError
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Head
from protoslice.tensors.omitted import Omitted
from protoslice.versions import ONNX_FILES, READERS

_HEADS: Final = f"heads-{READERS}-{ONNX_FILES}"
_LARGEST: Final = LARGEST_ROW // 2
"""The approximate limit of a store's saved heads in bytes. About two hundred heads fit; no more heads are saved."""
_HEAD_WEIGHT: Final = 1000
"""The approximate memory of a head in bytes."""

_Heads = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class TextView:
    """A view of a store that is JSON or a rendered message, with its digest."""

    text: bytes
    sha256: bytes
    next: str | None
    """The cursor of the next page; None on the last page and for a view without pages."""
    omitted: Omitted | None

    @classmethod
    def of(cls, text: bytes, *, next: str | None = None, omitted: Omitted | None = None) -> Self:
        """Return a view with this text and the text's digest."""
        return cls(text, hashlib.sha256(text).digest(), next, omitted)


async def text(opened: OpenStore, view: tuple[object, ...], make: Callable[[], Awaitable[TextView]]) -> TextView:
    """Return the text of a view from the cache, or call `make`."""

    async def made() -> tuple[TextView, int]:
        found = await make()
        return found, len(found.text)

    return await opened.results.get((opened.row, "text", *view), made, cancellable=True)


async def get_head(opened: OpenStore, etag: str) -> Head | None:
    """Return the head of the view with this entity tag if it was saved earlier; else None."""
    async with opened.head_turn:
        known: _Heads | None = opened.results.find((opened.row, "heads"))
        known = _kept(opened, await _loaded(opened)) if known is None else known
    found = known.get(etag)
    if found is None:
        return None
    size, filename, media_type, omitted = found
    left_out = None if omitted is None else Omitted(omitted[0], tuple(omitted[1]))
    return Head(etag, filename, media_type, size=size, omitted=left_out)


async def put_head(opened: OpenStore, head: Head) -> None:
    """Save a head for this and other processes, if the row has room; ignore errors of the database."""
    left_out = None if head.omitted is None else [head.omitted.count, head.omitted.names]
    async with opened.head_turn:
        # Another process may have added heads meanwhile. If two processes write at once, one head is lost, and its
        # length is computed again.
        known = (opened.results.find((opened.row, "heads")) or {}) | (await _loaded(opened) or {})
        more = known | {head.etag: [head.size, head.filename, head.media_type, left_out]}
        data = json.dumps(more).encode()
        if len(data) <= _LARGEST:
            _kept(opened, more)
            if more != known:
                await opened.derived.save(_HEADS, data)


def _kept(opened: OpenStore, known: _Heads | None) -> _Heads:
    if known is not None:
        opened.results.put((opened.row, "heads"), known, _HEAD_WEIGHT * len(known))
    return known or {}


async def _loaded(opened: OpenStore) -> _Heads | None:
    """Return the saved heads, or None if the database is unavailable."""
    with suppress(ProtosliceError):
        data = await opened.derived.load(_HEADS)
        return {} if data is None else dict(json.loads(data))
    return None

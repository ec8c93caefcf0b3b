"""Digests of representations, computed piece by piece."""

from __future__ import annotations

import hashlib
from contextlib import aclosing

from protoslice.concurrency.executor import Worker
from protoslice.stores.objects.representation import Representation


async def sha256_of(view: Representation, worker: Worker, start: int = 0, end: int | None = None) -> bytes:
    """The SHA-256 of the bytes of `view` from `start` up to `end`, which defaults to the end of `view`."""
    sha = hashlib.sha256()
    async with aclosing(view.pieces(start, view.size if end is None else end)) as pieces:
        async for piece in pieces:
            await worker.bulk(lambda piece=piece: sha.update(piece))  # type: ignore[misc]
    return sha.digest()

"""Following a recipe: what it sends and what it copies become the files of an ingest, digested like any other.

A copy names the store, file and range it is of, and whoever may read that may copy it: a digest opens nothing. Copied
bytes are verified like those of any read, and belong to the new store alone afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound
from protoslice.recipes import Copy, RecipeEnd, RecipeFile, RecipeReader
from protoslice.stores.ingest import Ingest, Sink
from protoslice.stores.opened import OpenStore
from protoslice.stores.paths import is_id

__all__ = ["Viewing", "follow"]


class Viewing(Protocol):
    """Whoever opens stores."""

    async def view(self, ref: str) -> OpenStore:
        """The store that `ref` names."""


async def follow(body: AsyncIterator[bytes], ingest: Ingest, stores: Viewing) -> None:
    """Take in the files that a recipe makes. Raises unless each has the size and the digest that it says."""
    reader = RecipeReader()
    sink: Sink | None = None
    path = ""
    async for piece in body:
        for event in reader.feed(piece):
            match event:
                case RecipeFile():
                    path, sink = event.path, await ingest.file(event.path)
                case RecipeEnd() if sink is not None:
                    await _end(sink, path, event)
                case Copy() if sink is not None:
                    await _copy(event, sink, stores)
                case bytes() if sink is not None:
                    await sink.write(event)
    reader.finish()


async def _end(sink: Sink, path: str, end: RecipeEnd) -> None:
    info = await sink.close()
    if (info.size, info.sha256) != (end.size, end.sha256):
        raise InvalidInput(f"{path!r} does not have the size and the digest that the recipe says: nothing was stored")


async def _copy(copy: Copy, sink: Sink, stores: Viewing) -> None:
    if not is_id(copy.store):
        raise InvalidInput("a recipe copies from a store by its whole id")
    try:
        source = (await stores.view(copy.store)).file(copy.file)
        if copy.offset + copy.length > source.size:
            raise InvalidInput(f"{copy.file!r} of store {copy.store} has {source.size} bytes: there is no such range")
        async for piece in source.pieces(copy.offset, copy.offset + copy.length):
            await sink.write(bytes(piece))
    except (NotFound, IntegrityError) as error:
        # The recipe is right and the store is not what it was: whoever has the bytes can send them instead.
        raise Conflict(f"what is to be copied from store {copy.store} is gone or damaged: send it") from error

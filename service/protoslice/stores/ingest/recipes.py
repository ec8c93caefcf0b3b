"""Execution of recipes: literals and copied ranges become the files of an ingest.

A copy names store, file and range; a client that may read those may copy them, and a digest alone gives no access.
Copied bytes are verified like any read, and belong to the new store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final, Protocol

from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.recipes import Copy, Event, Literal, RecipeEnd, RecipeFile, RecipeReader
from protoslice.stores.ingest.ingest import Ingest, Sink
from protoslice.stores.names import is_id
from protoslice.stores.objects.representation import Representation
from protoslice.stores.reading.opened import OpenStore

__all__ = ["StoreOpener", "follow"]

_AHEAD: Final = 1 << 20
"""Memory of recipe events read ahead of writing."""
_EVENT_BYTES: Final = 300
_WRONG: Final = "the file does not have the size and the digest that the recipe says: nothing was stored"


class StoreOpener(Protocol):
    """Access to opened stores."""

    async def view(self, ref: str) -> OpenStore:
        """The opened store that `ref` names."""


async def follow(body: AsyncIterator[bytes], ingest: Ingest, stores: StoreOpener) -> None:
    """Ingest the files of a recipe; raises unless each has the size and digest that the recipe states.

    The recipe is read ahead of writing and checked on the way, so that an obvious error in a short recipe costs no
    copying. A wrong digest of a file made of several parts shows only after copying, which is limited by `ingest.room`;
    what was written becomes garbage.
    """
    reader, plan, writing = RecipeReader(), _Plan(ingest.room, stores), _Writing(ingest, stores)
    async for piece in body:
        for event in reader.feed(piece):
            await plan.add(event)
            if plan.held > _AHEAD:
                await writing.carry_out(plan.take())
    reader.finish()
    await writing.carry_out(plan.take())


class _Plan:
    """Checks the events of a recipe read ahead: sums up sizes and looks up copied ranges."""

    def __init__(self, room: int, stores: StoreOpener) -> None:
        self.held = 0
        """Memory held by the events, about."""
        self._room = room
        self._stores = stores
        self._events: list[Event] = []
        self._total = 0
        self._size = 0
        self._parts: list[str | None] = []

    def take(self) -> list[Event]:
        """Remove and return the pending events."""
        taken, self._events, self.held = self._events, [], 0
        return taken

    async def add(self, event: Event) -> None:
        """Check and queue an event.

        Raises for a missing source, a wrong size or digest, or a file beyond the room.
        """
        match event:
            case RecipeFile():
                self._size, self._parts = 0, []
            case Literal():
                self._grow(event.length, None)
            case Copy():
                whole = await self._whole(event)
                self._grow(event.length, whole)
            case RecipeEnd():
                self._check(event)
        self._events.append(event)
        self.held += _weight(event)

    def _grow(self, length: int, sha256: str | None) -> None:
        self._size += length
        self._total += length
        if self._total > self._room:
            raise LimitExceeded(f"the recipe makes {self._total} bytes or more, and an upload has {self._room} at most")
        if length and len(self._parts) < 2:
            self._parts.append(sha256)

    async def _whole(self, copy: Copy) -> str | None:
        """Digest of a copied range that is a whole file of known digest; else None."""
        source = await _source(copy, self._stores)
        return source.sha256.hex() if source.sha256 is not None and copy.length == source.size else None

    def _check(self, end: RecipeEnd) -> None:
        known = self._parts[0] if len(self._parts) == 1 else None
        if self._size != end.size or (known is not None and known != end.sha256):
            raise InvalidInput(_WRONG)


class _Writing:
    """Writes the files of a recipe."""

    def __init__(self, ingest: Ingest, stores: StoreOpener) -> None:
        self._ingest = ingest
        self._stores = stores
        self._sink: Sink | None = None

    async def carry_out(self, events: Iterable[Event]) -> None:
        """Write the given events."""
        for event in events:
            if isinstance(event, RecipeFile):
                self._sink = await self._ingest.file(event.path)
            elif self._sink is not None:
                await self._go_on(event, self._sink)

    async def _go_on(self, event: Event, sink: Sink) -> None:
        match event:
            case Copy():
                await _copy(event, sink, self._stores)
            case bytes():
                await sink.write(event)
            case RecipeEnd():
                info = await sink.close()
                if (info.size, info.sha256) != (event.size, event.sha256):
                    raise InvalidInput(f"{info.path!r}: {_WRONG}")


def _weight(event: Event) -> int:
    """Memory that an event takes, about."""
    match event:
        case bytes():
            return len(event)
        case Copy():
            return _EVENT_BYTES + len(event.file)
        case _:
            return _EVENT_BYTES


async def _source(copy: Copy, stores: StoreOpener) -> Representation:
    """Source of a copy; raises when it is gone or has no such range."""
    if not is_id(copy.store):
        raise InvalidInput("a recipe copies from a store by its whole id")
    try:
        source = (await stores.view(copy.store)).file(copy.file)
    except (NotFound, IntegrityError) as error:
        raise _gone(copy) from error
    if copy.offset + copy.length > source.size:
        raise InvalidInput(f"{copy.file!r} of store {copy.store} has {source.size} bytes: there is no such range")
    return source


async def _copy(copy: Copy, sink: Sink, stores: StoreOpener) -> None:
    source = await _source(copy, stores)
    try:
        async for piece in source.pieces(copy.offset, copy.offset + copy.length):
            await sink.write(bytes(piece))
    except (NotFound, IntegrityError) as error:
        raise _gone(copy) from error


def _gone(copy: Copy) -> Conflict:
    # The recipe is valid but the store has changed: the client can send the bytes instead.
    return Conflict(f"what is to be copied from store {copy.store} is gone or damaged: send it")

"""Following a recipe: what it sends and what it copies become the files of an ingest, digested like any other.

A copy names the store, file and range it is of, and whoever may read that may copy it: a digest opens nothing. Copied
bytes are verified like those of any read, and belong to the new store alone afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final, Protocol

from protoslice.errors import Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.recipes import Copy, Event, Literal, RecipeEnd, RecipeFile, RecipeReader
from protoslice.stores.ingest.ingest import Ingest, Sink
from protoslice.stores.names import is_id
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.serving import Representation

__all__ = ["Viewing", "follow"]

_AHEAD: Final = 1 << 20
"""Bytes of memory that a recipe is read ahead into."""
_EVENT_BYTES: Final = 300
_WRONG: Final = "the file does not have the size and the digest that the recipe says: nothing was stored"


class Viewing(Protocol):
    """Whoever opens stores."""

    async def view(self, ref: str) -> OpenStore:
        """The store that `ref` names."""


async def follow(body: AsyncIterator[bytes], ingest: Ingest, stores: Viewing) -> None:
    """Take in the files that a recipe makes. Raises unless each has the size and the digest that it says.

    The recipe is read ahead of what is written, and checked as it is read: of a short one nothing is copied unless all
    that can be known of it is right.

    A wrong digest of a file that copies parts of others shows only when they are copied. That costs `ingest.room` bytes
    of reading and writing at most, the limit of an upload, and what was written is garbage.
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
    """What a recipe goes on to make: its sizes are added up, and what it copies is looked for."""

    def __init__(self, room: int, stores: Viewing) -> None:
        self.held = 0
        """Bytes of memory that the events take, about."""
        self._room = room
        self._stores = stores
        self._events: list[Event] = []
        self._total = 0
        self._size = 0
        self._parts: list[str | None] = []

    def take(self) -> list[Event]:
        """The events that were added and not taken yet."""
        taken, self._events, self.held = self._events, [], 0
        return taken

    async def add(self, event: Event) -> None:
        """Take the next event; raises when what it says cannot be."""
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
        """The digest of the copied bytes where it is known: when they are a whole file."""
        source = await _source(copy, self._stores)
        return source.sha256.hex() if source.sha256 is not None and copy.length == source.size else None

    def _check(self, end: RecipeEnd) -> None:
        known = self._parts[0] if len(self._parts) == 1 else None
        if self._size != end.size or (known is not None and known != end.sha256):
            raise InvalidInput(_WRONG)


class _Writing:
    """Carries out what a recipe says."""

    def __init__(self, ingest: Ingest, stores: Viewing) -> None:
        self._ingest = ingest
        self._stores = stores
        self._sink: Sink | None = None

    async def carry_out(self, events: Iterable[Event]) -> None:
        """Write what the next events say."""
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
    """About the bytes of memory that an event takes."""
    match event:
        case bytes():
            return len(event)
        case Copy():
            return _EVENT_BYTES + len(event.file)
        case _:
            return _EVENT_BYTES


async def _source(copy: Copy, stores: Viewing) -> Representation:
    """What is copied from; the range is there."""
    if not is_id(copy.store):
        raise InvalidInput("a recipe copies from a store by its whole id")
    try:
        source = (await stores.view(copy.store)).file(copy.file)
    except (NotFound, IntegrityError) as error:
        raise _gone(copy) from error
    if copy.offset + copy.length > source.size:
        raise InvalidInput(f"{copy.file!r} of store {copy.store} has {source.size} bytes: there is no such range")
    return source


async def _copy(copy: Copy, sink: Sink, stores: Viewing) -> None:
    source = await _source(copy, stores)
    try:
        async for piece in source.pieces(copy.offset, copy.offset + copy.length):
            await sink.write(bytes(piece))
    except (NotFound, IntegrityError) as error:
        raise _gone(copy) from error


def _gone(copy: Copy) -> Conflict:
    # The recipe is right and the store is not what it was: the client can send the bytes instead.
    return Conflict(f"what is to be copied from store {copy.store} is gone or damaged: send it")

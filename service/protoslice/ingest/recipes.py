"""The execution of recipes: new bytes and copied ranges become the files of an ingest.

A copy names a store, a file and a range. A client may copy what it may read; the digest alone gives no access. Copied
bytes are verified like all other reads. Large parts of files are not written again: the new store refers to the objects
that hold them, if these objects are worth sharing. A file that is a whole file of a store is not even read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from protoslice.catalog.syntax import is_id
from protoslice.errors import ChecksumMismatch, Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.ingest.file_writer import FileWriter
from protoslice.ingest.ingest import Ingest
from protoslice.ingest.sharing import LEAST_SHARED, worth_sharing
from protoslice.recipes import Copy, Event, Literal, RecipeEnd, RecipeFile, RecipeReader
from protoslice.serving.finding import FileRef
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation

View = Callable[[str], Awaitable[OpenStore]]
"""A function that opens the store with an id."""
_TAKEN: Final = 1000
"""Largest number of whole files of stores that are added in one step."""
_WRONG: Final = "The file does not match the size and digest in the recipe: nothing was stored"


async def follow(body: AsyncIterator[bytes], ingest: Ingest, view: View) -> None:
    """Create the files of a recipe; raise `ChecksumMismatch` if a file differs from its size or digest in the recipe.

    `view` opens the stores that the recipe copies from. The recipe's events are executed as they arrive. Bytes
    that were written before an error become garbage; `ingest.room` limits their number.
    """
    reader, writing = RecipeReader(), _Writing(ingest, view)
    async for piece in body:
        for event in reader.feed(piece):
            await writing.carry_out(event)
    reader.finish()
    await writing.finish()


class _Writing:
    """A writer of the files of a recipe; it shares files that are whole files of stores and does not copy them."""

    def __init__(self, ingest: Ingest, view: View) -> None:
        self._ingest = ingest
        self._view = view
        self._room = ingest.room
        self._total = 0
        """The bytes of all files so far."""
        self._path = ""
        self._last: Copy | None = None
        """The last copy that was read but not executed yet."""
        self._writer: FileWriter | None = None
        self._whole: tuple[Copy, FileRef] | None = None
        """The file's first copy, as long as it is a whole stored file and the file has no other bytes."""
        self._taken: dict[str, FileRef] = {}
        self._worth = "", frozenset[str]()
        """The store that was last copied from, and the keys of its objects that are worth sharing."""

    async def carry_out(self, event: Event) -> None:
        """Execute one event. A copy is held back until the next event, which may continue the copied range."""
        if isinstance(event, Copy):
            await _source(event, self._view)
        if isinstance(event, Literal | Copy):
            self._total += event.length
            if self._total > self._room:
                raise LimitExceeded(
                    f"The files of the recipe have {self._total} bytes or more in total, but at most {self._room} are "
                    "allowed"
                )
        last = self._last
        if isinstance(event, Copy):
            if last is not None and _continues(last, event):
                self._last = replace(last, length=last.length + event.length)
                return
            self._last = event
        else:
            self._last = None
        if last is not None:
            await self._copy(last)
        match event:
            case RecipeFile():
                self._path, self._writer, self._whole = event.path, None, None
            case RecipeEnd():
                await self._end(event)
            case bytes():
                await (await self._opened()).write(event)

    async def finish(self) -> None:
        """Add the remaining whole files after the last event; at that point no copy is waiting."""
        await self._take()

    async def _copy(self, copy: Copy) -> None:
        if not copy.length:
            return
        ref = await _whole(copy, self._view) if self._writer is None and self._whole is None else None
        if ref is not None:
            self._whole = copy, ref
        else:
            await self._append(copy, await self._opened())

    async def _append(self, copy: Copy, writer: FileWriter) -> None:
        """Append a copied range to the open file: share large parts and write all other bytes."""
        source, store = await _source(copy, self._view), await self._view(copy.store)
        ref, at, end = store.refs.get(copy.file), copy.offset, copy.offset + copy.length
        try:
            if ref is None or copy.length < LEAST_SHARED:
                async with aclosing(source.pieces(at, end)) as pieces:
                    async for piece in pieces:
                        await writer.write(piece)
                return
            if self._worth[0] != copy.store:
                self._worth = copy.store, worth_sharing(each.location for each in store.refs.values())
            for extent in ref.location.extents(at, end):
                await writer.share(extent, self._worth[1], source.pieces(at, at + extent.size))
                at += extent.size
        except (NotFound, IntegrityError) as error:
            raise _gone(copy) from error

    async def _opened(self) -> FileWriter:
        """Return the file's open writer, after appending a copy that was held back."""
        if self._writer is None:
            await self._take()  # earlier files go first, as in the recipe
            self._writer = await self._ingest.file(self._path)
        if self._whole is not None:
            (copy, _), self._whole = self._whole, None
            await self._append(copy, self._writer)
        return self._writer

    async def _end(self, end: RecipeEnd) -> None:
        if self._whole is not None:
            ref = self._whole[1]
            if self._path in self._taken:
                await self._take()  # this raises an error for the second file at the same path
            self._taken[self._path] = ref
            if len(self._taken) >= _TAKEN:
                await self._take()
            size, sha256 = ref.size, ref.sha256
        else:
            info = await (await self._opened()).close()
            size, sha256 = info.size, info.sha256 or ""
        if (size, sha256) != (end.size, end.sha256):
            raise ChecksumMismatch(f"{self._path!r}: {_WRONG}")

    async def _take(self) -> None:
        taken, self._taken = self._taken, {}
        if taken:
            await self._ingest.take(taken)


async def _source(copy: Copy, view: View) -> Representation:
    """Return the source of a copy; raise an error if the source is missing or does not have the range."""
    if not is_id(copy.store):
        raise InvalidInput("A recipe must name the store to copy from by its full id")
    try:
        source = (await view(copy.store)).file(copy.file)
    except (NotFound, IntegrityError) as error:
        raise _gone(copy) from error
    if copy.offset + copy.length > source.size:
        raise InvalidInput(
            f"The recipe copies bytes after the end of {copy.file!r} of store {copy.store}, which has {source.size} "
            "bytes"
        )
    return source


async def _whole(copy: Copy, view: View) -> FileRef | None:
    """Return the stored file that a copy covers completely, or None for a part of a file or an external object."""
    await _source(copy, view)
    ref = (await view(copy.store)).refs.get(copy.file)
    return ref if ref is not None and copy.length == ref.size else None


def _continues(last: Copy, copy: Copy) -> bool:
    return (copy.store, copy.file, copy.offset) == (last.store, last.file, last.offset + last.length)


def _gone(copy: Copy) -> Conflict:
    # The recipe is valid, but the store has changed. The client can send the bytes instead.
    return Conflict(f"The bytes to copy from store {copy.store} are missing or damaged: send them instead")

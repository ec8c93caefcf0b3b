"""Interface and contract of storage backends, and the facts that they report.

Objects are named byte strings in one flat namespace. Every backend, and every wrapper round one, keeps these promises:

- Reads are exact. A range is answered with exactly its bytes or with an error, never short and never padded.
- An object appears whole and durable, or not at all: once `put` or `commit` has returned, it survives a power cut (if
  `abilities.durable`); when one fails or is cancelled, the key has what it had before, or the new object, whole.
- An entity tag names one content of one key for good: with `if_etag`, a replaced object is a `Conflict`, never a
  mixture.
- Errors are those of `protoslice.errors`, and their messages hold the key and never a URL, a credential or a backend's
  own text.
- A call may be cancelled at any await; nothing is left held afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import ClassVar, Final, Protocol, Self, final

from protoslice.errors import Conflict, InvalidInput, StorageUnavailable, Unsupported
from protoslice.storage.keys import ObjectKey

INTERFACE: Final = (2, 0)
"""Version of the interface; see `plugins.Version`."""
PIECE: Final = 1 << 20
TRIES: Final = 8
"""Attempts to read an object that is replaced again and again."""
PAGE: Final = 999
"""Objects of a page: one fewer than a bucket lists, to know whether more are left."""

Buffer = bytes | bytearray | memoryview
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Abilities of a backend beyond reading, as data; a call that it cannot serve raises `Unsupported`."""

    write: bool = True
    listing: bool = True
    durable: bool = True
    """Acknowledged objects survive the process and a power cut."""
    shared: bool = True
    """Another process that opens the same URI sees the same objects."""
    open_file: bool = False
    """`open_file` gives a descriptor to read or map without a copy."""
    free_space: bool = False
    """`free_bytes` knows how much room is left."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Facts about an object, known without reading it; `etag` is opaque and compared unchanged."""

    key: ObjectKey
    size: int
    etag: str
    modified: datetime

    def check_etag(self, etag: str | None) -> None:
        """Raise `Conflict` when `etag` is given and is not that of this object."""
        if etag is not None and etag != self.etag:
            raise Conflict(f"object {str(self.key)!r} has changed")


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """Object and its facts, of one version."""

    stat: ObjectStat
    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Objects in key order; `after` continues the listing, and is None when nothing is left."""

    items: tuple[ObjectStat, ...]
    after: ObjectKey | None


class OpenFile(Protocol):
    """Open object of a local backend: readable and unchanged after its key is replaced or deleted."""

    @property
    def stat(self) -> ObjectStat:
        """The facts of the object that was opened."""

    def fileno(self) -> int:
        """Return the read-only descriptor, valid until `close`; for pread, mmap and sendfile."""

    def pread(self, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end`; blocks the thread.

        Raise `IntegrityError` when it ends early.
        """

    def close(self) -> None:
        """Release the descriptor after running `pread` calls; harmless when repeated."""


class Writer(ABC):
    """Writer of one new object: nothing is visible before `commit`, nothing is left after `abort`.

    Only one task at a time may use a writer. As an async context manager it aborts on the way out unless it was
    committed.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """The bytes written so far."""

    @abstractmethod
    async def write(self, piece: Buffer) -> None:
        """Append a piece, which the caller may reuse afterwards; wait when the storage is slower than the caller.

        Raise `StorageFull` when there is no room. After any error only `abort` may be called.
        """

    @abstractmethod
    async def commit(self) -> str:
        """Publish the object durably, replacing one with its key, and return its entity tag.

        If cancelled, it may have published the object or not.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Discard the object; harmless when repeated or after `commit`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()


def refuse_options(scheme: str, options: Mapping[str, str]) -> None:
    """Raise `InvalidInput` if there are options, for a backend that has none."""
    if options:
        raise InvalidInput(f"{scheme} storage has no options")


class Storage(ABC):
    """Namespace of objects. Methods may be called concurrently; the top of this module has all promises."""

    interface: ClassVar[tuple[int, int] | int] = INTERFACE
    """Version of this interface that the backend was written for; a plug-in states it as a literal."""

    @property
    @abstractmethod
    def abilities(self) -> Abilities:
        """Abilities of this backend."""

    @abstractmethod
    async def stat(self, key: ObjectKey) -> ObjectStat:
        """Return the size, entity tag and time of an object; raise `NotFound` when there is none, a folder included."""

    async def get(self, key: ObjectKey) -> ObjectContent:
        """Return the object with its facts; raise `NotFound` when there is none.

        Backends that can have both in one request override this.
        """
        for _ in range(TRIES):
            stat = await self.stat(key)
            with suppress(Conflict):  # replaced since `stat`
                return ObjectContent(stat, await self.get_range(key, 0, stat.size, if_etag=stat.etag))
        raise StorageUnavailable(f"object {str(key)!r} keeps changing")

    @abstractmethod
    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """Return exactly the bytes from `start` up to `end`, which may be equal.

        Raise `NotFound` when there is no object, `Conflict` when `if_etag` is given and the object has another entity
        tag now, `InvalidInput` unless 0 <= start <= end, and `IntegrityError` when the object ends before `end`.
        """

    @abstractmethod
    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        """Return `get_range` of each span, in the given order, all from one version of the object.

        Near spans are read together, and others concurrently within a window, so spans may be in any order and overlap.
        """

    @abstractmethod
    def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        """Return the bytes of `get_range`, to the end when `end` is None, in pieces of about a mebibyte, none empty.

        All pieces are of one version of the object. Errors are the same as in `get_range`, and are raised at the latest
        when the bytes run out. Close it (`aclosing`) when leaving early.
        """

    @abstractmethod
    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """Create or replace an object in one step, durably, and return its entity tag."""

    @abstractmethod
    async def writer(self, key: ObjectKey) -> Writer:
        """Return a writer for an object of any size."""

    @abstractmethod
    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        """Return the first `limit` objects below the folder `prefix` that come after `after`, in key order.

        Objects that are created or deleted meanwhile may be missed or shown; all others are shown exactly once over the
        pages.
        """

    @final
    async def iterate(
        self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE
    ) -> AsyncGenerator[ObjectStat, None]:
        """Yield all objects below the folder `prefix` that come after `after`, in key order, by calls of `list`.

        Each call requests `limit` objects, after those of the previous call were consumed. A wrapper that forwards
        `list` forwards this too.
        """
        while True:
            page = await self.list(prefix, after=after, limit=limit)
            for item in page.items:
                yield item
            after = page.after
            if after is None:
                return

    @abstractmethod
    async def delete(self, key: ObjectKey) -> None:
        """Remove an object, durably; a missing object is not an error."""

    async def open_file(self, key: ObjectKey) -> OpenFile:
        """Return the object held open for pread and mmap (if `abilities.open_file`)."""
        raise Unsupported(f"this storage cannot open {str(key)!r} as a file")

    async def free_bytes(self) -> int:
        """Return the bytes that may still be written (if `abilities.free_space`)."""
        raise Unsupported("this storage does not report its free space")

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        """Remove what interrupted writers left at least that long ago; return the number of removed things.

        Never remove an object, or the data of a running writer. Return 0 if the backend cleans up automatically.
        """
        return 0

    async def close(self) -> None:
        """Release connections, threads and descriptors; harmless when repeated."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

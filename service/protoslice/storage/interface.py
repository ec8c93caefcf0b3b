"""The interface and contract of storage backends, and the facts that backends report.

Objects are named byte strings in one flat namespace. Every backend keeps these promises, and so does every wrapper:

- Reads are exact: a range read returns exactly the requested bytes or raises an error.
- Writes are atomic and durable. Once `put` or `commit` has returned, the object survives a power cut (if
  `abilities.durable`). After a failed or cancelled write, the key has its old state or the whole new object.
- An entity tag names one content of one key forever. If an object has been replaced, a read with the old tag as
  `if_etag` raises `Conflict`.
- All errors are classes of `protoslice.errors`. A message may contain the key, but no URL, no credential and no text
  from the backend.
- A call may be cancelled at any await, and then releases everything that it holds.
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
"""The version of the interface; see `plugins.Version`."""
PIECE: Final = 1 << 20
TRIES: Final = 8
"""Largest number of attempts to read an object that other writers keep replacing."""
PAGE: Final = 999
"""Largest number of objects in a page. A bucket lists 1000 objects; the last shows whether another page follows."""

Buffer = bytes | bytearray | memoryview
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of a backend beyond reading. A call without the needed ability raises `Unsupported`."""

    write: bool = True
    listing: bool = True
    durable: bool = True
    """True if a written object survives the end of the process and a power cut."""
    shared: bool = True
    """True if another process that opens the same URI sees the same objects."""
    open_file: bool = False
    """True if `open_file` returns a descriptor, so that callers can read or map an object without a copy."""
    free_space: bool = False
    """True if `free_bytes` knows the free space."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """The facts about an object. `etag` is opaque: callers may only test it for equality."""

    key: ObjectKey
    size: int
    etag: str
    modified: datetime

    def check_etag(self, etag: str | None) -> None:
        """Raise `Conflict` when `etag` is not None and differs from this object's tag."""
        if etag is not None and etag != self.etag:
            raise Conflict(f"object {str(self.key)!r} has changed")


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """An object's bytes and facts, both from the same version."""

    stat: ObjectStat
    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing, in key order. To get the next page, pass `after` to `list`; it is None on the last page."""

    items: tuple[ObjectStat, ...]
    after: ObjectKey | None


class OpenFile(Protocol):
    """An open object of a local backend; it stays readable and unchanged if its key is replaced or deleted."""

    @property
    def stat(self) -> ObjectStat:
        """The facts of the object at the time of opening."""

    def fileno(self) -> int:
        """Return the read-only descriptor for pread, mmap and sendfile; it is valid until `close`."""

    def pread(self, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end`; this call blocks the thread.

        Raise `IntegrityError` when the object ends before `end`.
        """

    def close(self) -> None:
        """Close the descriptor once all running `pread` calls have ended; repeated calls do nothing."""


class Writer(ABC):
    """A writer of one new object, which becomes visible at `commit`; `abort` removes all traces.

    Only one task at a time may use a writer. A writer is also an async context manager: on exit, it aborts unless
    `commit` has succeeded.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes written so far."""

    @abstractmethod
    async def write(self, piece: Buffer) -> None:
        """Append a piece; wait if the storage is slower than the caller.

        The caller may reuse the buffer afterwards. Raise `StorageFull` when the storage is full. After any error,
        only `abort` may be called.
        """

    @abstractmethod
    async def commit(self) -> str:
        """Publish the object durably, replace an existing object with the same key, and return the new entity tag.

        A cancelled `commit` may or may not have published the object.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Discard the object; this does nothing when repeated or after `commit`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()


def refuse_options(scheme: str, options: Mapping[str, str]) -> None:
    """Raise `InvalidInput` unless `options` is empty; backends without options call this."""
    if options:
        raise InvalidInput(f"{scheme} storage has no options")


class Storage(ABC):
    """A namespace of objects. Methods may be called concurrently; this module's docstring lists all promises."""

    interface: ClassVar[tuple[int, int] | int] = INTERFACE
    """The interface version that the backend was written for. A plug-in must write the version as a literal."""

    @property
    @abstractmethod
    def abilities(self) -> Abilities:
        """The abilities of this backend."""

    @abstractmethod
    async def stat(self, key: ObjectKey) -> ObjectStat:
        """Return an object's size, entity tag and time; raise `NotFound` if the key has no object or is a folder."""

    async def get(self, key: ObjectKey) -> ObjectContent:
        """Return an object with its facts; raise `NotFound` if the key has no object.

        A backend overrides this method if one request can return both.
        """
        for _ in range(TRIES):
            stat = await self.stat(key)
            with suppress(Conflict):  # the object was replaced after `stat`
                return ObjectContent(stat, await self.get_range(key, 0, stat.size, if_etag=stat.etag))
        raise StorageUnavailable(f"object {str(key)!r} keeps changing")

    @abstractmethod
    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """Return exactly the bytes from `start` up to `end`; `start` and `end` may be equal.

        Raise `NotFound` if the key has no object. Raise `Conflict` when `if_etag` differs from the object's current
        entity tag. Raise `InvalidInput` unless 0 <= start <= end, and `IntegrityError` when the object ends before
        `end`.
        """

    @abstractmethod
    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        """Return the bytes of each span, in the order of `spans`, all from one version of the object.

        Spans may overlap and may have any order. Nearby spans are read together. Separate reads run concurrently, up to
        a fixed number at a time.
        """

    @abstractmethod
    def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes from `start` to `end`, or to the object's end when `end` is None.

        Pieces have about a mebibyte, are never empty, and are all from one version of the object. The errors are those
        of `get_range`; an error may come only after some pieces, at the place where the bytes run out. Close the
        generator (`aclosing`) when you leave it early.
        """

    @abstractmethod
    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """Create or replace an object atomically and durably, and return its entity tag."""

    @abstractmethod
    async def writer(self, key: ObjectKey) -> Writer:
        """Return a writer for an object of any size."""

    @abstractmethod
    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        """Return up to `limit` objects below the folder `prefix` whose keys come after `after`, in key order.

        An object that is created or deleted during the listing may appear or not. Every other object appears on exactly
        one page.
        """

    @final
    async def iterate(
        self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE
    ) -> AsyncGenerator[ObjectStat, None]:
        """Yield all objects below the folder `prefix` whose keys come after `after`, in key order.

        Each call of `list` requests `limit` objects, once the consumer has taken all objects of the previous call. A
        wrapper that forwards `list` thus forwards `iterate` too.
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
        """Remove an object durably; do nothing if the key has no object."""

    async def open_file(self, key: ObjectKey) -> OpenFile:
        """Open an object for pread and mmap; this needs `abilities.open_file`."""
        raise Unsupported(f"this storage cannot open {str(key)!r} as a file")

    async def free_bytes(self) -> int:
        """Return how many more bytes can be written; this needs `abilities.free_space`."""
        raise Unsupported("this storage does not report its free space")

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        """Remove data that interrupted writers left at least `older_than_seconds` ago; return the number removed.

        Never remove an object or the data of a running writer. Return 0 if the backend cleans up automatically.
        """
        return 0

    async def close(self) -> None:
        """Release connections, threads and descriptors; repeated calls do nothing."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

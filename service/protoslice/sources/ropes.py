"""Ropes: byte sequences that refer to ranges of sources. A rope is sliced without a read."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, BinaryIO, SupportsIndex, overload

from protoslice._core import Rope as CoreRope
from protoslice._core import Sources
from protoslice.errors import InvalidInput

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from protoslice.sources.source import RangeSource

PIECE = 1 << 20
"""Number of bytes that one read returns while a rope is copied or iterated over."""
_AT_ONCE = 1024
"""Number of extents (ranges of sources) and literals (bytes in memory) at which a builder packs them into a rope."""


class Rope:
    """A sequence of bytes in sources and in memory. A slice copies no bytes; bytes are read when they are used.

    Args:
        core: Rope of the Rust engine.
        sources: Sources that the rope refers to by their index.
        read: The same sources in the form of the engine, or None if the engine has not opened them yet.

    Examples:
        >>> with protoslice.open("model.onnx") as proto:
        ...     part = proto.rope[:2]
        ...     len(part), bytes(part).hex()
        (2, '080a')
    """

    __slots__ = ("_read", "core", "sources")

    def __init__(self, core: CoreRope, sources: Sequence[RangeSource], read: Sources | None = None) -> None:
        """Create a rope from a rope of the engine and its `sources`."""
        self.core = core
        self.sources = sources
        """Sources that the rope's extents refer to by their index."""
        self._read = read

    @classmethod
    def of(cls, source: RangeSource, start: int = 0, stop: int | None = None) -> Rope:
        """Return a rope over the bytes of a source from `start` up to `stop`.

        Args:
            source: Object with `size` and `read(offset, length)`.
            start: Offset of the first byte.
            stop: Offset after the last byte. The default is the size of the source.

        Returns:
            The rope.

        Examples:
            >>> with protoslice.open(b"") as proto:
            ...     protoslice.Rope.of(proto.rope).size
            0
        """
        stop = source.size if stop is None else stop
        return Rope(CoreRope([(0, start, stop - start)] if stop > start else []), [source])

    @classmethod
    def joined(cls, parts: Iterable[Rope | bytes]) -> Rope:
        """Return one rope that concatenates all `parts`, without reading the bytes of any rope.

        Args:
            parts: Ropes and bytes, in order.

        Returns:
            The rope.

        Examples:
            >>> bytes(protoslice.Rope.joined([b"ab", b"cd"]))
            b'abcd'
        """
        sources = SourceList()
        builder = RopeBuilder(sources)
        for part in parts:
            builder.add(part)
        return Rope(CoreRope(builder.ropes()), sources.listed)

    @property
    def _sources(self) -> Sources:
        if self._read is None:
            self._read = Sources(self.sources)
        return self._read

    @property
    def literals(self) -> int:
        """Number of bytes that the rope holds in memory, as opposed to bytes in sources."""
        return sum(len(piece) for piece in self.core.pieces() if isinstance(piece, bytes))

    def part(self, start: int, stop: int) -> Rope:
        """Return a rope over the bytes from `start` up to `stop` of this rope.

        Args:
            start: Offset of the first byte.
            stop: Offset after the last byte.

        Returns:
            The rope.

        Examples:
            >>> bytes(protoslice.Rope.joined([b"abcd"]).part(1, 3))
            b'bc'
        """
        return Rope(self.core.slice(start, stop), self.sources, self._read)

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.core.size

    def __len__(self) -> int:
        return self.core.size

    def __bool__(self) -> bool:
        return self.core.size > 0

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Rope: ...
    def __getitem__(self, key: SupportsIndex | slice) -> int | Rope:
        if not isinstance(key, slice):
            return self._byte(index(key))
        start, stop, step = key.indices(self.core.size)
        if step != 1:
            raise InvalidInput("Cannot slice these bytes with a step other than 1")
        return Rope(self.core.slice(start, max(start, stop)), self.sources, self._sources)

    def _byte(self, at: int) -> int:
        """Return the byte at offset `at`. A negative offset counts from the end.

        Raise `IndexError` if the offset is out of range.
        """
        offset = at + self.core.size if at < 0 else at
        if not 0 <= offset < self.core.size:
            raise IndexError(f"Byte {at} is out of range: there are {self.core.size} bytes")
        return self.read(offset, 1)[0]

    def __iter__(self) -> Iterator[memoryview]:
        return self.pieces()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.core.size} bytes in {self.core.piece_count} pieces>"

    def read(self, offset: int = 0, length: int | None = None, /) -> bytes:
        """Return the `length` bytes at `offset`.

        Args:
            offset: Offset of the first byte.
            length: Number of bytes. By default, all bytes up to the end are read.

        Returns:
            Exactly these bytes.

        Raises:
            InvalidInput: The range is not within the rope.

        Examples:
            >>> protoslice.Rope.joined([b"abcd"]).read(1, 2)
            b'bc'
        """
        stop = self.core.size if length is None else offset + length
        if offset < 0 or stop < offset or stop > self.core.size:
            raise InvalidInput(f"Bytes {offset} to {stop} are out of range: there are {self.core.size} bytes")
        return self._sources.read(self.core, offset, stop - offset)

    def __bytes__(self) -> bytes:
        return self.read()

    def readinto(self, buffer: WriteableBuffer, offset: int = 0) -> int:
        """Fill `buffer` with the bytes at `offset`.

        Args:
            buffer: Writable buffer, such as a `bytearray`.
            offset: Offset of the first byte.

        Returns:
            The number of bytes written into the buffer. The number is smaller than the buffer if the rope ends earlier.

        Examples:
            >>> buffer = bytearray(8)
            >>> protoslice.Rope.joined([b"abcd"]).readinto(buffer)
            4
        """
        view = memoryview(buffer).cast("B")
        count = max(0, min(view.nbytes, self.core.size - offset))
        for at in range(0, count, PIECE):
            end = min(at + PIECE, count)
            view[at:end] = self._sources.read(self.core, offset + at, end - at)
        return count

    def pieces(self, size: int = PIECE) -> Iterator[memoryview]:
        """Yield the bytes in pieces.

        Args:
            size: Number of bytes in each piece. The last piece may be shorter.

        Returns:
            An iterator of memory views.

        Examples:
            >>> [bytes(piece) for piece in protoslice.Rope.joined([b"abcde"]).pieces(2)]
            [b'ab', b'cd', b'e']
        """
        for offset in range(0, self.core.size, size):
            yield memoryview(self._sources.read(self.core, offset, min(size, self.core.size - offset)))

    def write_to(self, file: BinaryIO) -> int:
        """Write all bytes to a binary file.

        Args:
            file: File that is open for writing.

        Returns:
            The number of bytes written.

        Examples:
            >>> with open("copy", "wb") as file:
            ...     protoslice.Rope.joined([b"abcd"]).write_to(file)
            4
        """
        for piece in self.pieces():
            left = piece
            while left:  # a raw file or a pipe may write only some of the bytes
                left = left[file.write(left) :]
        return self.core.size

    def open(self) -> RopeFile:
        """Return a seekable binary file over the rope, for libraries that require a file.

        Returns:
            A read-only file.

        Examples:
            >>> protoslice.Rope.joined([b"abcd"]).open().read(2)
            b'ab'
        """
        return RopeFile(self)


class RopeFile(io.RawIOBase):
    """A read-only, seekable raw file over a rope."""

    def __init__(self, rope: Rope) -> None:
        self._rope = rope
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` with the next bytes and return their number, which is 0 at the end."""
        count = self._rope.readinto(buffer, self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to `offset` from the start, the current position or the end, and return the new position.

        Raise `InvalidInput` for a position before the start, and for a `whence` other than 0, 1 and 2.
        """
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._rope.size}.get(whence)
        if base is None:
            raise InvalidInput(f"Invalid whence {whence}: use 0, 1 or 2")
        if base + offset < 0:
            raise InvalidInput(f"Position {base + offset} is before the first byte")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at


class SourceList:
    """A list of the sources of joined ropes, without duplicates."""

    def __init__(self) -> None:
        self.listed: list[RangeSource] = []
        self._numbers: dict[int, int] = {}

    def number(self, source: RangeSource) -> int:
        """Return the index of `source` in `listed`; append an absent source first."""
        number = self._numbers.setdefault(id(source), len(self.listed))
        if number == len(self.listed):
            self.listed.append(source)
        return number


class RopeBuilder:
    """A builder that appends parts to a new rope. Each extent takes about 24 bytes of memory."""

    def __init__(self, sources: SourceList) -> None:
        self._sources = sources
        self.size = 0
        """Number of bytes added so far."""
        self._ropes: list[CoreRope] = []
        self._pieces: list[bytes | tuple[int, int, int]] = []

    def add(self, part: Rope | bytes) -> None:
        """Append `part` to the rope."""
        self.size += len(part) if isinstance(part, bytes) else part.size
        if isinstance(part, bytes):
            self._pieces.append(part)
        else:
            for piece in part.core.pieces():
                if isinstance(piece, tuple):
                    piece = (self._sources.number(part.sources[piece[0]]), *piece[1:])
                self._pieces.append(piece)
        if len(self._pieces) >= _AT_ONCE:
            self._ropes.append(CoreRope(self._pieces))
            self._pieces = []

    def ropes(self) -> list[CoreRope]:
        """Return engine ropes that together contain all added parts; they refer to the sources in the `SourceList`."""
        return [*self._ropes, CoreRope(self._pieces)]

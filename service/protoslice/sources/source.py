"""The protocols of sources, which answer range reads, and base classes of objects that close sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from protoslice._core import Sources


@runtime_checkable
class Closable(Protocol):
    """An object that holds files or connections."""

    def close(self) -> None:
        """Release the files or connections. A second call does nothing."""


class ClosedAtEnd(ABC):
    """A base class for objects that a `with` statement closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release the files or connections. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, because it holds open files or connections: open it again in "
            "the other process"
        )


@runtime_checkable
class RangeSource(Protocol):
    """Immutable bytes that can be read by range."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`; raise an error if the source has fewer."""


class SourceOwner(ClosedAtEnd):
    """A reader that owns sources. The method `close`, or the end of a `with` block, closes the owned sources."""

    def __init__(self, sources: Sequence[RangeSource]) -> None:
        self._read = Sources(sources)
        self._owned: list[Closable] = []

    def own(self, *taken: Closable) -> None:
        """Take over the objects `taken`, so that the `close` of this reader also closes them.

        Args:
            *taken: Files or connections.

        Examples:
            >>> with protoslice.open(b"") as proto:
            ...     proto.own(open("model.onnx", "rb"))
        """
        self._owned += taken

    def close(self) -> None:
        """Close the sources that this reader owns. Ropes of this reader cannot be read afterwards."""
        self._read.close()
        while self._owned:
            self._owned.pop().close()


class FileSet(Mapping[str, RangeSource], ClosedAtEnd):
    """Files by path. Each file is opened when it is needed, and `close` closes all files."""

    @abstractmethod
    def size_of(self, path: str) -> int:
        """Return the size in bytes of the file at `path`, without opening it; raise `KeyError` for an unknown path."""

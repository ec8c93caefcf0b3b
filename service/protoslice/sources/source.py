"""Protocols of sources, which answer range reads, and the owner that closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from protoslice._core import Sources


@runtime_checkable
class Closable(Protocol):
    """Object that holds files or connections."""

    def close(self) -> None:
        """Release what is held; may be called twice."""


class ClosedAtEnd(ABC):
    """Base of classes with a `close`, which the end of a `with` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; may be called twice."""

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
    """Immutable bytes, read by range."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`; raise an error if there are fewer."""


class SourceOwner(ClosedAtEnd):
    """Reader of sources, which closes the sources that were opened for it; closes itself at the end of a `with`."""

    def __init__(self, sources: Sequence[RangeSource]) -> None:
        self._read = Sources(sources)
        self._owned: list[Closable] = []

    def own(self, *taken: Closable) -> None:
        """Close `taken` together with this reader.

        Args:
            *taken: Files or connections.

        Examples:
            >>> with protoslice.open(b"") as proto:
            ...     proto.own(open("model.onnx", "rb"))
        """
        self._owned += taken

    def close(self) -> None:
        """Close the files that were opened for this reader; its ropes become unreadable."""
        self._read.close()
        while self._owned:
            self._owned.pop().close()


class FileSet(Mapping[str, RangeSource], ClosedAtEnd):
    """Files by path, each opened when it is needed and closed with the others."""

    @abstractmethod
    def size_of(self, path: str) -> int:
        """Return the size in bytes of the file at `path` without opening it; raise `KeyError` when there is none."""

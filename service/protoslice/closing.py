"""Objects that hold files, connections or threads, and are closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable


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

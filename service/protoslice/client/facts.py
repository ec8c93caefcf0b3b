"""What a service says: stores, chunks, nodes, tags, as dataclasses read from its JSON and never believed unseen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, TypeVar

from protoslice.errors import IntegrityError

__all__ = [
    "Chunk", "File", "Missing", "Node", "Piece", "Pushed", "Removed", "Restored", "Schema", "Store", "Tag", "Taken",
    "Tensor", "read_json",
]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a store; the digest of one that was registered in place is not known."""

    path: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Store:
    """A store: an immutable set of files, one of which may be the root proto."""

    id: str
    type: str | None
    """Full name of the root's type, or `unknown`; None for a store without a root."""
    root: str | None
    """The path of the root proto; None where none of the files is one."""
    size: int
    chunks: int
    min_chunk: int
    max_chunk: int
    created: datetime
    tags: tuple[str, ...]
    files: tuple[File, ...]
    source: str
    schema: str | None
    """The fingerprint of the schema that the root is read by; None for an unknown type."""
    planner: int | None
    """The version of the planner that made the chunks; None for a root that is no proto."""
    why: str | None = None
    """One sentence on why there is no root; None where there is one."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push came to."""

    store: Store
    created: bool
    """False when the service had this very store already."""
    sent: int
    """Bytes of content that went over the wire."""
    copied: int
    """Bytes of content that the service took from stores it had."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A store that was removed."""

    id: str
    tags: tuple[str, ...]
    """The tags that went with it."""
    restorable_until: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """Tags of a restored store that point elsewhere by now."""

    tags_taken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """A store whose removal was taken back."""

    store: Store
    tags_taken: tuple[str, ...]
    """Tags that it had, and that point elsewhere by now."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a store."""

    index: int
    kind: str
    type: str | None
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file: the pieces of a store cover every byte of its files, in order."""

    file: str
    offset: int
    size: int
    sha256: str

    @property
    def end(self) -> int:
        """Where it ends in its file."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Found:
    """Where a piece that was asked for lies."""

    sha256: str
    size: int
    store: str
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Which of the pieces asked for are there, and which are not."""

    missing: tuple[str, ...]
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One thing in the tree of a proto."""

    path: str
    field: int
    name: str | None
    kind: str | None
    type: str | None
    count: int | None
    size: int
    deeper: bool
    text: str | None
    children: tuple[Node, ...] = ()
    """What lies below, as far as a depth beyond 1 was asked for."""
    more: int = 0
    """How many children are not shown."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A movable name for a store."""

    name: str
    store: str
    updated: datetime


@dataclass(frozen=True, slots=True)
class Schema:
    """An uploaded descriptor set."""

    name: str
    size: int
    messages: int
    updated: datetime


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a store; `address` is unique there, `name` may not be."""

    name: str
    address: str
    dtype: str | None
    """None where the model names a type that nobody knows."""
    shape: tuple[int, ...] | None
    """None where the model gives one that makes no sense."""
    size: int | None
    """Of its elements, one by one; none for strings."""
    file: str | None
    """Where its bytes lie; none where that is more than one file, or none."""
    kind: str
    problem: str | None = None
    """Why its bytes cannot be had, where that is so."""


def read_json(kind: type[T], data: object) -> T:
    """The `kind` that `data` says; an `IntegrityError` when it says something else. Members we do not know are left."""
    if not isinstance(data, Mapping):
        raise IntegrityError(f"the service answered with something that is no {kind.__name__.lower()}")
    given: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in data:
            try:
                given[field.name] = _READERS[str(field.type)](data[field.name])
            except (ValueError, TypeError) as error:
                said = f"the service answered with a {kind.__name__.lower()} whose {field.name!r} is not as agreed"
                raise IntegrityError(said) from error
    try:
        return kind(**given)
    except TypeError as error:
        raise IntegrityError(f"the service answered with a {kind.__name__.lower()} that lacks a member") from error


def _plain(wanted: type[T]) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if type(value) is not wanted:
            raise TypeError
        return value

    return read


def _perhaps(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else read(value)


def _each(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    return lambda value: tuple(read(each) for each in _plain(list)(value))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError
    return value


_text = _plain(str)
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "str": _text,
    "str | None": _perhaps(_text),
    "int": _count,
    "int | None": _perhaps(_count),
    "bool": _plain(bool),
    "datetime": lambda value: datetime.fromisoformat(_text(value)),
    "tuple[str, ...]": _each(_text),
    "tuple[int, ...]": _each(_count),
    "tuple[int, ...] | None": _perhaps(_each(_count)),
    "tuple[File, ...]": _each(lambda value: read_json(File, value)),
    "tuple[Found, ...]": _each(lambda value: read_json(Found, value)),
    "tuple[Node, ...]": _each(lambda value: read_json(Node, value)),
}
"""How a member is read, by how its dataclass writes its type."""

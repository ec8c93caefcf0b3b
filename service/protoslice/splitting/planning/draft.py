"""Draft of a message: the remainder while parts become chunks. The source message is only read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.planning.shape import Shape
from protoslice.splitting.planning.strip import FieldOmissions, Omissions, drop, sliced, stripped
from protoslice.splitting.tags import Key, Path, show, value_at

Chunk: TypeAlias = Message | bytes


@dataclass(frozen=True, slots=True)
class LazyChunk:
    """Chunk built on demand; `size` in bytes, None where unknown beforehand."""

    build: Callable[[], Chunk]
    size: int | None = None


def existing_chunk(chunk: Chunk) -> LazyChunk:
    """`LazyChunk` of an existing chunk."""
    size = None if isinstance(chunk, Message) else len(chunk)
    return LazyChunk(lambda: chunk, size)


class MessageDraft:
    """Remaining message: a list of omissions, or, once `editable` was accessed, a copy."""

    def __init__(self, source: Message) -> None:
        self._source = source
        self._omissions = Omissions()
        self._copy: Message | None = None

    @property
    def editable(self) -> Message:
        """Editable copy of the remaining message, made on first access."""
        if self._copy is None:
            self._copy = stripped(self._source, self._omissions)
        return self._copy

    @property
    def readable(self) -> Message:
        """The copy if one was made, else the whole source, which must not be changed."""
        return self._source if self._copy is None else self._copy

    def base(self, size: int | None = None) -> LazyChunk:
        """Chunk of the remaining message."""
        if self._copy is not None:
            return existing_chunk(self._copy)
        if self._omissions == Omissions():
            return LazyChunk(lambda: self._source, size)
        return LazyChunk(lambda: stripped(self._source, self._omissions), size)

    def take(self, path: Path, size: int | None = None) -> LazyChunk:
        """Take the part at `path` out: a message, or the bytes of a string or bytes field.

        `InvalidInput` when nothing stands there.
        """
        if self._copy is not None:
            return self._cut_out(self._copy, path)
        value = _there(self._source, path)
        inside = self._omissions.detach(path)
        if isinstance(value, Message):
            whole = inside == Omissions()
            return LazyChunk(lambda: value if whole else stripped(value, inside), size)
        return LazyChunk(lambda: _bytes(value_at(self._source, path)), size)

    def take_run(self, path: Path, each: Shape, keys: Sequence[Key], size: int | None = None) -> LazyChunk:
        """Take the elements or map entries `keys` out of a field of the message at `path`.

        Elements have to be all that remain from the first of `keys` on.
        """
        message = _there(self.readable, path)
        below = self._omissions.at(path).fields
        omissions = below.setdefault(each.number, FieldOmissions())
        if self._copy is not None:
            chunk = sliced(message, each, keys, FieldOmissions())
            _remove(message, each, keys)
            return LazyChunk(lambda: chunk, size)
        if isinstance(keys, range):
            omissions.keep = keys.start if omissions.keep is None else min(keys.start, omissions.keep)
        else:
            omissions.gone.update(keys)
        return LazyChunk(lambda: sliced(message, each, keys, omissions), size)

    def _cut_out(self, copy: Message, path: Path) -> LazyChunk:
        value = _there(copy, path)
        if not isinstance(value, Message):
            drop(value_at(copy, path[:-1]), path[-1])
            return existing_chunk(_bytes(value))
        chunk = type(value)()
        chunk.MergeFrom(value)
        value.Clear()
        return existing_chunk(chunk)


def _there(message: Message, path: Path) -> Any:
    if (value := value_at(message, path)) is None:
        raise InvalidInput("The message has no value at this path that could become a chunk", path=show(path))
    return value


def _remove(message: Message, each: Shape, keys: Sequence[Key]) -> None:
    values = each.of(message)
    if isinstance(keys, range):
        del values[keys.start : keys.stop]
        return
    for key in keys:
        del values[key]


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)

"""Merger of chunks into a message."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message

from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded, NotFound
from protoslice.merging.order import merge_order
from protoslice.merging.records import open_chunks
from protoslice.merging.values import key_of, value_of
from protoslice.sources.opening import as_source, opened_by
from protoslice.sources.source import RangeSource
from protoslice.splitting.planning.shape import Shape, descriptor_of, field_by_number, shape
from protoslice.splitting.policy import LARGEST_MESSAGE
from protoslice.splitting.tags import Path, Step, show

Chunk: TypeAlias = Message | bytes
Options: TypeAlias = Mapping[str, str] | None
DEPTH = 100


class Merger:
    """Merges chunks into a message; after an error the message is as before."""

    @staticmethod
    def merge(chunks: Sequence[Chunk], chunked_message: Any, into: Message, *, depth: int = DEPTH) -> None:
        """Merge chunks in memory into `into`, in the order of `chunked_message`.

        `InconsistentChunks` when chunks and places do not fit, `LimitExceeded` beyond `depth` levels.
        """
        with _unharmed(into):
            _Merge(chunks, list, depth).apply(into, chunked_message, (), 0)

    @staticmethod
    def read(
        prefix: str | os.PathLike[str], into: Message, *, depth: int = DEPTH, storage_options: Options = None
    ) -> None:
        """Merge `<prefix>.cpb` into `into`, or else `<prefix>.pb`; `NotFound` when neither exists.

        `prefix` is a path or a URI; `storage_options` are those of the storage at a URI.
        """
        path = os.fspath(prefix)
        with _opened([f"{path}.cpb", f"{path}.pb"], storage_options) as (source, found):
            if found.endswith(".cpb"):
                _read_chunked(source, None, into, depth)
            else:
                _read_whole(source, found, into)

    @staticmethod
    def read_partial(
        prefix: str | os.PathLike[str],
        metadata: Any,
        into: Message,
        *,
        depth: int = DEPTH,
        storage_options: Options = None,
    ) -> None:
        """Merge the parts of `<prefix>.cpb` that `metadata` keeps; `NotFound` when there is no such file.

        `metadata` is the file's `ChunkMetadata` with some `chunked_fields` removed. Otherwise as `read`.
        """
        with _opened([f"{os.fspath(prefix)}.cpb"], storage_options) as (source, _):
            _read_chunked(source, metadata, into, depth)


@contextmanager
def _opened(paths: Sequence[str], storage_options: Options) -> Iterator[tuple[RangeSource, str]]:
    """The first of the files that exists, and its path; closed in the end."""
    for path in paths:
        try:
            source = as_source(path, storage_options)
        except NotFound:
            continue
        with ExitStack() as held:
            for opened in opened_by(source, path):
                held.callback(opened.close)
            yield source, path
            return
    raise NotFound(f"No file {' or '.join(map(str, paths))}")


def _read_chunked(source: RangeSource, metadata: Any, into: Message, depth: int) -> None:
    with _unharmed(into), open_chunks(source, metadata) as (chunks, found):
        _Merge(chunks, merge_order, depth).apply(into, found.message, (), 0)


def _read_whole(source: RangeSource, path: str, into: Message) -> None:
    with _unharmed(into):
        try:
            into.MergeFromString(source.read(0, source.size))
        except DecodeError as error:
            raise CorruptModel(f"{path} is not a {descriptor_of(into).full_name}: {error}") from error


@contextmanager
def _unharmed(into: Message) -> Iterator[None]:
    """Restore `into` when the block raises."""
    # The copy is free for an empty message.
    before = type(into)()
    before.CopyFrom(into)
    try:
        yield
    except BaseException:
        into.CopyFrom(before)
        raise


class _Merge:
    """One merge: the chunks, the order of the fields of a message, and the limit of nesting."""

    def __init__(self, chunks: Sequence[Chunk], order: Callable[[Iterable[Any]], list[Any]], depth: int) -> None:
        self._chunks = chunks
        self._order = order
        self._depth = depth

    def apply(self, target: Message, message: Any, path: Path, depth: int) -> None:
        """Merge `message` into `target`, which stands at `path`."""
        if depth > self._depth:
            raise LimitExceeded(f"Chunks are nested more than {self._depth} levels deep", path=_where(path))
        if message.HasField("chunk_index"):
            self._merge_chunk(target, message.chunk_index, path)
        try:
            ordered = self._order(message.chunked_fields)
        except InconsistentChunks as error:
            raise InconsistentChunks(error.message, path=_where(path)) from error
        for field in ordered:
            self._place(target, list(field.field_tag), field.message, path, depth + 1)

    def _chunk(self, number: int, path: Path) -> Chunk:
        if number >= len(self._chunks):
            count = len(self._chunks)
            raise _inconsistent(path, f"The chunked proto refers to chunk {number}, but has only {count} chunks")
        try:
            chunk = self._chunks[number]
        except InconsistentChunks as error:
            raise _inconsistent(path, error.message) from error
        if not isinstance(chunk, Message) and len(chunk) > LARGEST_MESSAGE:
            raise _inconsistent(path, f"Chunk {number} has {len(chunk)} bytes, over the limit of {LARGEST_MESSAGE}")
        return chunk

    def _merge_chunk(self, target: Message, number: int, path: Path) -> None:
        chunk = self._chunk(number, path)
        descriptor = descriptor_of(target)
        if isinstance(chunk, Message):
            if descriptor_of(chunk).full_name != descriptor.full_name:
                name = descriptor_of(chunk).full_name
                raise _inconsistent(path, f"Chunk {number} is a {name} instead of a {descriptor.full_name}")
            if type(chunk) is type(target):
                target.MergeFrom(chunk)
                return
            chunk = chunk.SerializePartialToString()
        try:
            target.MergeFromString(bytes(chunk))
        except DecodeError as error:
            raise _inconsistent(path, f"Chunk {number} is not a {descriptor.full_name}: {error}") from error

    def _place(self, target: Message, tags: list[Any], message: Any, path: Path, depth: int) -> None:
        """Merge `message` at the place `tags` below `target`."""
        if not tags:
            if not (message.HasField("chunk_index") or message.chunked_fields):
                raise _inconsistent(path, "A chunked message has neither a chunk nor chunked fields")
            self.apply(target, message, path, depth)
            return
        if depth > self._depth:
            raise LimitExceeded(f"The message nests more than {self._depth} levels deep", path=_where(path))
        each = self._field(target, tags.pop(0), path)
        if each.key is not None:
            self._map_value(target, each, tags, message, path, depth)
        elif each.repeated:
            self._element(target, each, tags, message, path, depth)
        else:
            self._singular(target, each, tags, message, path, depth)

    def _field(self, target: Message, tag: Any, path: Path) -> Shape:
        if tag.WhichOneof("kind") != "field":
            raise _inconsistent(path, "An index or map key appears where a field is expected")
        field = field_by_number(descriptor_of(target), tag.field)
        if field is None:
            raise _inconsistent(path, f"{descriptor_of(target).full_name} has no field {tag.field}")
        return shape(field)

    def _singular(self, target: Message, each: Shape, tags: list[Any], message: Any, path: Path, depth: int) -> None:
        path = (*path, Step(each))
        if tags and tags[0].WhichOneof("kind") in ("index", "map_key"):
            raise _inconsistent(path, "The field is neither repeated nor a map, but an index or key follows")
        if each.message:
            inside = each.of(target)
            inside.SetInParent()
            self._below(inside, tags, message, path, depth)
            return
        setattr(target, each.name, self._value(each, tags, message, path))

    def _element(self, target: Message, each: Shape, tags: list[Any], message: Any, path: Path, depth: int) -> None:
        values = each.of(target)
        given = bool(tags) and tags[0].WhichOneof("kind") == "index"
        if not given and (each.message or tags):
            raise _inconsistent((*path, Step(each)), "The field is repeated, but the chunk metadata gives no index")
        index = tags.pop(0).index if given else len(values)
        path = (*path, Step(each, index))
        if index > len(values):
            raise _inconsistent(path, f"The list has {len(values)} elements: elements before this one are missing")
        if each.message:
            inside = values[index] if index < len(values) else values.add()
            self._below(inside, tags, message, path, depth)
            return
        value = self._value(each, tags, message, path, lenient=True)
        values[index : index + 1] = [value]

    def _map_value(self, target: Message, each: Shape, tags: list[Any], message: Any, path: Path, depth: int) -> None:
        if not tags or tags[0].WhichOneof("kind") != "map_key":
            raise _inconsistent((*path, Step(each)), "The field is a map, but the chunk metadata gives no key")
        try:
            key = key_of(each.map_key, tags.pop(0).map_key)
        except ValueError as error:
            raise _inconsistent((*path, Step(each)), str(error)) from error
        path = (*path, Step(each, key))
        if each.map_value.message:
            self._below(each.of(target)[key], tags, message, path, depth)
        else:
            each.of(target)[key] = self._value(each.map_value, tags, message, path, lenient=True)

    def _below(self, inside: Message, tags: list[Any], message: Any, path: Path, depth: int) -> None:
        """Descend along `tags`; at their end, merge `message`."""
        if tags:
            self._place(inside, tags, message, path, depth + 1)
        else:
            self.apply(inside, message, path, depth)

    def _value(self, each: Shape, tags: list[Any], message: Any, path: Path, *, lenient: bool = False) -> Any:
        if tags or message.chunked_fields:
            raise _inconsistent(path, "The field is not a message, so it has no fields to merge into")
        if not message.HasField("chunk_index"):
            raise _inconsistent(path, "No chunk has the field's value")
        number = message.chunk_index
        chunk = self._chunk(number, path)
        if isinstance(chunk, Message):
            raise _inconsistent(path, f"Chunk {number} is a message, but the field is not")
        try:
            return value_of(each, bytes(chunk), lenient=lenient)
        except ValueError as error:
            raise _inconsistent(path, f"Chunk {number} does not hold the field's value: {error}") from error


def _inconsistent(path: Path, message: str) -> InconsistentChunks:
    return InconsistentChunks(message, path=_where(path))


def _where(path: Path) -> str:
    return show(path) or "the root message"

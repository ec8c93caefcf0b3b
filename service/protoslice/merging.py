"""The merging of chunks into messages, as TensorFlow's Merger does it; errors are raised instead of aborts."""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, TypeAlias, cast, overload

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from protoslice import _core
from protoslice.defaults import LARGEST_MESSAGE
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded, NotFound, Unsupported
from protoslice.riegeli import RecordReader
from protoslice.sources.opening import SourceLike, as_source, opened_by
from protoslice.sources.source import RangeSource
from protoslice.splitting.fields import INT_32, WHOLE, Shape, descriptor_of, field_by_number, shape
from protoslice.splitting.paths import Path, Step, chunk_metadata, show
from protoslice.splitting.remainder import Chunk

__all__ = ["Merger"]

Options: TypeAlias = Mapping[str, str] | None
DEPTH = 100


class Merger:
    """The functions that merge chunks into a message; after an error, the message is unchanged."""

    @staticmethod
    def merge(chunks: Sequence[Chunk], chunked_message: Any, into: Message, *, depth: int = DEPTH) -> None:
        """Merge chunks in memory into `into`, in the order of `chunked_message`.

        Raise `InconsistentChunks` if the chunks do not fit their places. Raise `LimitExceeded` if they are nested
        more than `depth` levels deep.
        """
        with _unharmed(into):
            _Merge(chunks, list, depth).apply(into, chunked_message, (), 0)

    @staticmethod
    def read(
        prefix: str | os.PathLike[str], into: Message, *, depth: int = DEPTH, storage_options: Options = None
    ) -> None:
        """Merge `<prefix>.cpb` into `into`, or else `<prefix>.pb`; raise `NotFound` if neither file exists.

        `prefix` is a path or a URI; for a URI, `storage_options` are the options of its storage.
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
        """Merge the parts of `<prefix>.cpb` that `metadata` keeps; raise `NotFound` if the file does not exist.

        `metadata` is the `ChunkMetadata` of the file without some of its `chunked_fields`. The other arguments are
        those of `read`.
        """
        with _opened([f"{os.fspath(prefix)}.cpb"], storage_options) as (source, _):
            _read_chunked(source, metadata, into, depth)


@contextmanager
def _opened(paths: Sequence[str], storage_options: Options) -> Iterator[tuple[RangeSource, str]]:
    """Yield the first file that exists, and its path; close the file when the context ends."""
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
    raise NotFound(f"There is no file {' or '.join(map(str, paths))}")


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
    """Restore the message `into` if the block raises an error."""
    # The copy costs nothing for an empty message.
    before = type(into)()
    before.CopyFrom(into)
    try:
        yield
    except BaseException:
        into.CopyFrom(before)
        raise


class _Merge:
    """One merge, with its chunks, the order in which fields are merged, and the limit of nesting."""

    def __init__(self, chunks: Sequence[Chunk], order: Callable[[Iterable[Any]], list[Any]], depth: int) -> None:
        self._chunks = chunks
        self._order = order
        self._depth = depth

    def apply(self, target: Message, message: Any, path: Path, depth: int) -> None:
        """Merge `message` into `target`, which is at `path`."""
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
        """Merge `message` at the place `tags`, which is relative to `target`."""
        if not tags:
            if not (message.HasField("chunk_index") or message.chunked_fields):
                raise _inconsistent(path, "A message in the chunk metadata has neither a chunk nor chunked fields")
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
            raise _inconsistent(path, "The chunk metadata has an index or map key where a field is expected")
        field = field_by_number(descriptor_of(target), tag.field)
        if field is None:
            raise _inconsistent(path, f"{descriptor_of(target).full_name} has no field {tag.field}")
        return shape(field)

    def _singular(self, target: Message, each: Shape, tags: list[Any], message: Any, path: Path, depth: int) -> None:
        path = (*path, Step(each))
        if tags and tags[0].WhichOneof("kind") in ("index", "map_key"):
            raise _inconsistent(
                path, "The field is neither repeated nor a map, but the chunk metadata gives an index or key"
            )
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
            raise _inconsistent(
                path, f"The chunk metadata gives index {index}, but the list has only {len(values)} elements"
            )
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
        """Follow `tags` down into the message `inside`; at the end of the tags, merge `message`."""
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


_Rank: TypeAlias = tuple[int, int, Any]


def merge_order(fields: Iterable[Any]) -> list[Any]:
    """Return `fields` in the order of merging: the message itself first, then fields by number, and elements by index.

    Parents come before their children. Fields at equal places are ordered by chunk number, then as listed. Raise
    `InconsistentChunks` if tags of different kinds are at the same place.
    """
    keyed = [([_rank(tag) for tag in field.field_tag], field.message.chunk_index, field) for field in fields]
    keyed.sort(key=lambda each: each[:2])
    for (before, _, _), (after, _, _) in pairwise(keyed):
        differing = next(((a, b) for a, b in zip(before, after, strict=False) if a != b), None)
        if differing is not None and differing[0][0] != differing[1][0]:
            raise InconsistentChunks(
                "At one place, the chunk metadata has tags of different kinds (field, index or map key)"
            )
    return [field for _, _, field in keyed]


def _rank(tag: Any) -> _Rank:
    kind = tag.WhichOneof("kind")
    if kind == "map_key":
        key = tag.map_key
        name = key.WhichOneof("type")
        return (2, 1, key.s) if name == "s" else (2, 0, -1 if name is None else getattr(key, name))
    return (1, 0, tag.index) if kind == "index" else (0, 0, tag.field if kind else -1)


class ChunkRecords(Sequence[bytes]):
    """The chunks that `metadata` lists; each access reads a chunk from the file.

    An access raises `InconsistentChunks` if no record starts at the chunk's position, or if the record has another
    size.
    """

    def __init__(self, reader: RecordReader, metadata: Any) -> None:
        self._reader = reader
        self._chunks = metadata.chunks

    def __len__(self) -> int:
        return len(self._chunks)

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        info = self._chunks[number]
        record = self._at(number, info.offset)
        if info.size and info.size != len(record):
            raise InconsistentChunks(f"Chunk {number} should have {info.size} bytes, but its record has {len(record)}")
        return record

    def _at(self, number: int, offset: int) -> bytes:
        try:
            self._reader.seek_numeric(offset)
            record = self._reader.read_record()
        except NotFound:
            record = None
        if record is None or self._reader.last_pos.numeric != offset:
            raise InconsistentChunks(f"Chunk {number} should be the record at {offset}, but no record starts there")
        return record


@contextmanager
def open_chunks(src: SourceLike, metadata: Any = None) -> Iterator[tuple[ChunkRecords, Any]]:
    """Yield the chunks of the file `src`, and the metadata that was used.

    If `metadata` is None, the file's own `ChunkMetadata` is used. Raise `Unsupported` for a riegeli file without such
    metadata.
    """
    with RecordReader(src) as reader:
        found = _metadata(reader, str(getattr(src, "name", src))) if metadata is None else metadata
        yield ChunkRecords(reader, found), found


def _metadata(reader: RecordReader, path: str) -> Any:
    metadata = chunk_metadata()
    reader.seek_numeric(reader.size())
    record = reader.read_record() if reader.seek_back() else None
    if record is None:
        raise Unsupported(f"{path} is a riegeli file without records, not a chunked proto")
    try:
        _core.Chunked.check_metadata(record)
    except Unsupported as error:
        raise Unsupported(f"{path} is a riegeli file, but not a chunked proto: {error.message}") from error
    metadata.MergeFromString(record)
    return metadata


_Field = FieldDescriptor
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", re.ASCII)
_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan))",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_NUMBER = 4096
_WORDS = {"true": True, "false": False}
# Python's `str` of a bool; the guide's example makes chunks of map values in this way.
_PYTHON_WORDS = _WORDS | {"True": True, "False": False}


def value_of(field: Shape, chunk: bytes, *, lenient: bool = False) -> Any:
    """Return the value of a non-message `field` from a chunk; raise `ValueError` with the reason for a bad chunk.

    Numbers are parsed as C's `strtol` and `strtod` parse them: blanks before a number and text after it are ignored.
    A bool is `true` or `false`, and an enum is a name. If `lenient` is True, the forms of Python's `str` are accepted
    too.
    """
    if field.type == _Field.TYPE_BYTES:
        return chunk
    if field.type != _Field.TYPE_STRING and len(chunk) > _LONGEST_NUMBER:
        raise ValueError(f"{len(chunk)} bytes are too long for a number")
    text = _decoded(chunk)
    if field.type == _Field.TYPE_STRING:
        return text
    if field.type == _Field.TYPE_BOOL:
        return _word(text, lenient)
    if field.type == _Field.TYPE_ENUM:
        return _enum(field, text, lenient)
    return _integer(field, text) if field.type in WHOLE else _float(field, text)


def _decoded(chunk: bytes) -> str:
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the text is not UTF-8: {error.reason} at byte {error.start}") from error


def _word(text: str, lenient: bool) -> bool:
    words = _PYTHON_WORDS if lenient else _WORDS
    if text not in words:
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return words[text]


def _enum(field: Shape, text: str, lenient: bool) -> int:
    kind = cast(EnumDescriptor, field.descriptor.enum_type)
    found = kind.values_by_name.get(text)
    if found is not None:
        return int(found.number)
    if not lenient or not re.fullmatch(r"-?[0-9]{1,10}", text, re.ASCII):
        raise ValueError(f"{text[:40]!r} is not a value of {kind.full_name}")
    number = int(text)
    if number not in INT_32 or (kind.is_closed and number not in kind.values_by_number):
        raise ValueError(f"{number} is not a value of {kind.full_name}")
    return number


def _integer(field: Shape, text: str) -> int:
    if (match := _INTEGER.match(text)) is None:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    value = int(match[1])
    if value not in WHOLE[field.type]:
        raise ValueError(f"{match[1][:40]} is out of range")
    return value


def _float(field: Shape, text: str) -> float:
    if (match := _FLOAT.match(text)) is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    digits = match[1]
    try:
        value = float.fromhex(digits) if "x" in digits.lower() else float(digits)
    except OverflowError:
        value = math.inf
    named = "n" in digits.lower()
    if not named and (math.isinf(value) or (field.type == _Field.TYPE_FLOAT and not _fits_float(value))):
        raise ValueError(f"{digits[:40]} is out of range")
    return value


def _fits_float(value: float) -> bool:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return False
    return True


def key_of(field: Shape, tag: Any) -> Any:
    """Return the map key that the `MapKey` `tag` means, in a map whose key field is `field`.

    A key of another type is converted: numbers to text, text to numbers, true and false to 1 and 0. Raise
    `ValueError` if this is impossible.
    """
    name = tag.WhichOneof("type")
    if name is None:
        raise ValueError("the map key is empty")
    key = getattr(tag, name)
    if field.type == _Field.TYPE_STRING:
        return key if isinstance(key, str) else str(int(key))
    if isinstance(key, str) and not re.fullmatch(r"[+-]?[0-9]{1,20}", key, re.ASCII):
        raise ValueError(f"{key[:40]!r} is not a key of this map, whose keys are numbers")
    value = int(key)
    if field.type == _Field.TYPE_BOOL:
        return value != 0
    if value not in WHOLE[field.type]:
        raise ValueError(f"key {value} is out of range")
    return value

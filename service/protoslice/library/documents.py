"""Documents, which give access by path to files other than protos: tensor headers, bundle indexes, record streams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from protoslice import _core, schema
from protoslice.detection import Detection
from protoslice.detection.magic import GGUF, INDEX_ENDING, PIPELINE, SAFETENSORS
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.formats.gguf import LIST, SCALARS, STRING, TYPES, Cursor, GgufHeader, read_header
from protoslice.formats.paddle import PROGRAM, json_as_proto
from protoslice.formats.safetensors import SafetensorsFile, index_of
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.streams import Records
from protoslice.streams.records import JoinedRecords

_FIELDS: Final = {
    **dict.fromkeys((0, 2, 4, 10), "unsigned_integer"),
    **dict.fromkeys((1, 3, 5, 11), "integer"),
    **dict.fromkeys((6, 12), "number"),
    7: "truth",
    STRING: "text",
    LIST: "list",
}
"""Field of a `GgufValue` for each type of value; the field of a `GgufList` has an additional s at the end."""


def message_of(source: RangeSource, path: str, type_name: str) -> bytes:
    """Return the header of `source` as a serialized message of the type `type_name`.

    The message is serialized in small parts, so that only the result is large. Raise `Unsupported` for a diffusers
    pipeline.
    """
    message = schema.bundled().message_class(type_name)
    if path.rpartition("/")[2] == PIPELINE:
        raise Unsupported(f"{path} is JSON, which has no parts by path: read it as a file")
    parts = _gguf(source, path) if type_name == GGUF else _safetensors(source, path)
    return b"".join(message(**part).SerializeToString(deterministic=True) for part in parts)


def _safetensors(source: RangeSource, path: str) -> Iterator[dict[str, Any]]:
    if path.endswith(INDEX_ENDING):
        yield from ({"weight_map": {name: file}} for name, file in index_of(source, path).items())
        return
    tensor = schema.bundled().message_class(f"{SAFETENSORS}Tensor")
    file = SafetensorsFile(source, path)
    yield from ({"metadata": {key: text}} for key, text in file.metadata.items())
    for number in range(len(file)):
        entry = file.entry(number)
        about = tensor(dtype=entry.dtype, shape=entry.shape, start=entry.start, end=entry.end)
        yield {"tensors": {file.name(number): about}}


def _gguf(source: RangeSource, path: str) -> Iterator[dict[str, Any]]:
    header = read_header(source, path)
    value, tensor = (schema.bundled().message_class(f"{GGUF}{part}") for part in ("Value", "Tensor"))
    yield {"version": header.version, "big_endian": header.big_endian}
    for key in header.metadata:
        yield {"metadata": {key: value(**_value(source, path, header, key))}}
    for info in header.tensors:
        name = TYPES[info.type].name if info.type in TYPES else str(info.type)
        yield {"tensors": {info.name: tensor(type=name, shape=info.shape, offset=info.offset)}}


def _value(source: RangeSource, path: str, header: GgufHeader, key: str) -> dict[str, Any]:
    value = header.metadata[key]
    return _read(Cursor(source, path, value.offset, ">" if header.big_endian else "<"), value.type)


def _read(cursor: Cursor, kind: int) -> dict[str, Any]:
    """Read the value of type `kind` at `cursor`, and return it as a `GgufValue` with one field."""
    if kind != LIST:
        return {_FIELDS[kind]: _plain(cursor, kind)}
    inner, count = cursor.list_head()
    if inner == LIST:
        return {"list": {"lists": [_read(cursor, LIST)["list"] for _ in range(count)]}}
    if inner in SCALARS:
        return {"list": {f"{_FIELDS[inner]}s": cursor.scalars(inner, count)}}
    return {"list": {f"{_FIELDS[inner]}s": [_plain(cursor, inner) for _ in range(count)]}}


def _plain(cursor: Cursor, kind: int) -> Any:
    return schema.text_of(cursor.string()) if kind == STRING else cursor.scalars(kind, 1)[0]


TENSOR_BUNDLE: Final = "protoslice.TensorBundle"
"""Message type that represents the index of a tensor bundle."""
RECORDS: Final = "records"
"""Name of the single field of a stream."""

_LOOKED_AT: Final = 64
"""Largest number of records that are searched for a record that contains a path."""
_PATH: Final = re.compile(r"records(?:\[(?P<number>[0-9]{1,18})\](?:\.(?P<rest>.+))?)?", re.DOTALL)

Row = tuple[str, int, str | None, str | None, str | None, int | None, int, bool, str | None]
"""One node: step, field number, name, kind, type, count, size, True if it has nodes below it, text."""


class Document(Protocol):
    """A document that returns views and nodes by path, with the same interface as `_core.Document`."""

    def view(
        self,
        path: str = "",
        fields: Sequence[str] | None = None,
        omit: int | None = None,
        without: Sequence[str] | None = None,
    ) -> tuple[str, str | None, _core.Rope]:
        """Return the kind, message type and bytes of the value at `path`.

        If `fields` is not None, only these fields are kept. Values larger than `omit` bytes and the paths `without` are
        left out.
        """

    def children(self, path: str = "", start: int = 0, limit: int = 1000) -> tuple[Sequence[Any], int]:
        """Return at most `limit` rows of nodes below `path`, from node `start` on, and the number of all nodes."""


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A document of a file, with the sources that its ropes refer to."""

    document: Document
    sources: Sequence[RangeSource]


def bundle_document(index: RangeSource, limits: _core.Limits | None = None) -> FileDocument:
    """Return the index of a tensor bundle as a `protoslice.TensorBundle`, with `header`, and `entries` by name.

    The whole index is read. Raise `CorruptModel` for a damaged index.
    """
    image = _core.Rope([_core.Bundle(index, limits=limits).message()])
    return FileDocument(_indexed([], image, schema.bundled().flat(TENSOR_BUNDLE), TENSOR_BUNDLE, limits), [])


def index_document(
    source: RangeSource, path: str, found: Detection, limits: _core.Limits | None = None
) -> FileDocument | None:
    """Return a message that represents a tensor bundle's index, a JSON program, or a header of tensors.

    The header of a safetensors or GGUF file has `metadata`, and `tensors` by name. Return None for other files.
    """
    if found.kind == "table":
        return bundle_document(source, limits)
    if found.kind == "json" and found.type_name == PROGRAM:
        program = json_as_proto(source, limits)
        return FileDocument(program.document, program.sources)
    if found.kind not in {"safetensors", "gguf"} or found.type_name is None:
        return None
    image = _core.Rope([message_of(source, path, found.type_name)])
    return FileDocument(_indexed([], image, schema.bundled().flat(found.type_name), found.type_name, limits), [])


def stream_document(
    records: Records, sources: Sequence[RangeSource], types: schema.MessageTypes | None = None
) -> FileDocument:
    """Return the stream `records` over `sources` as a message with one repeated field, `records`.

    `types` take precedence over the bundled types. If the type of the records is unknown, numbers replace the names
    of their fields.
    """
    flat = None
    if records.type is not None:
        with suppress(Unsupported):
            flat = schema.find(records.type, [] if types is None else [types]).flat(records.type)
    return FileDocument(StreamDocument(records.core, records.type, flat, records.limits), sources)


def header_of(bundle: FileDocument) -> Mapping[str, object]:
    """Return the header of a tensor bundle as JSON: its number of shards, endianness and version."""
    _, type_name, rope = bundle.document.view("header")
    header: Any = schema.parsed(schema.bundled().message_class(str(type_name)), Rope(rope, bundle.sources).read())
    endianness = header.Endianness.Name(header.endianness).lower()
    return {"shards": header.num_shards, "endianness": endianness, "version": header.version.producer}


@dataclass(frozen=True, slots=True)
class StreamDocument:
    """A stream of records, shown as a message with one repeated field; a path is, for example, `records[10].name`."""

    records: JoinedRecords
    type: str | None
    """Full name of the records' message type, or None if it is unknown."""
    flat: _core.Schema | None
    """The engine's table of the records' type, or None if the type is unknown."""
    limits: _core.Limits | None
    """Limits of the engine for each record, or None for the default limits."""

    def view(
        self,
        path: str = "",
        fields: Sequence[str] | None = None,
        omit: int | None = None,
        without: Sequence[str] | None = None,
    ) -> tuple[str, str | None, _core.Rope]:
        """Return the value at a path in one record, as `Document.view` does.

        Raise `InvalidInput` for a path that does not lead into exactly one record.
        """
        number, rest = (None, "") if not path else _parsed(path)
        if number is None:
            raise InvalidInput("Start the path with a record of the stream, such as records[1000].name")
        return self._record(number).view(rest, fields, omit, without)

    def children(self, path: str = "", start: int = 0, limit: int = 1000) -> tuple[Sequence[Row], int]:
        """Return the nodes below a path, as `Document.children` does."""
        if not path:
            row = (RECORDS, 1, RECORDS, "message", self.type, self.records.count, self.records.end, True, None)
            return [row][start : start + limit], 1
        number, rest = _parsed(path)
        if number is not None:
            return self._record(number).children(rest, start, limit)
        last = min(self.records.count, start + limit)
        return [self._row(each) for each in range(start, last)], self.records.count

    def type_at(self, ranges: Iterable[tuple[int, int]], path: str) -> str | None:
        """Return the message type at `path` in the records of `ranges`, or None if it is unknown.

        Only the first 64 records are searched for the path.
        """
        if not path:
            return self.type
        for number in islice((n for start, stop in ranges for n in range(start, stop)), _LOOKED_AT):
            with suppress(NotFound):
                return self.view(f"records[{number}].{path}")[1]
        return None

    def _row(self, number: int) -> Row:
        size = self._rope(number).size
        return (f"[{number}]", 1, RECORDS, "message", self.type, None, size, size > 0, None)

    def _rope(self, number: int) -> _core.Rope:
        return self.records.rope([(number, number + 1)], None)

    def _record(self, number: int) -> _core.Document:
        if number >= self.records.count:
            raise NotFound(f"No record {number}: there are {self.records.count} records")
        return _indexed(
            [shard.source for shard in self.records.shards], self._rope(number), self.flat, self.type, self.limits
        )


def _parsed(path: str) -> tuple[int | None, str]:
    """Return the number of the record, or None for `records` itself, and the path in the record."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise NotFound(f"Invalid path {path[:80]!r}: a stream only has records, such as records[1000].name")
    return (None if found["number"] is None else int(found["number"])), found["rest"] or ""


def _indexed(
    sources: Sequence[RangeSource],
    image: _core.Rope,
    flat: _core.Schema | None,
    type_name: str | None,
    limits: _core.Limits | None,
) -> _core.Document:
    index = _core.index_source(sources, image, flat, type_name if flat is not None else None, limits=limits)
    return _core.Document(_core.Index(index), flat, sources, image, limits=limits)

"""The byte ranges of the fields of ONNX messages, and functions that compose other messages from these ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from protoslice import _core, schema, varints
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.sources.ropes import Rope
from protoslice.tensors.model import Model, RootProto

GRAPH, FUNCTIONS = 7, 25
"""Field numbers of a ModelProto."""
NODE, INITIALIZER, INPUT, OUTPUT, VALUE_INFO, SPARSE_INITIALIZER = 1, 5, 11, 12, 13, 15
"""Field numbers of a GraphProto."""
INITIALIZERS_AS_INPUTS: Final = 4
"""The first format version in which initializers need not also be inputs."""
_LARGEST_DECLARATION: Final = 1 << 20
_MOST_FIELDS: Final = 100_000
"""Largest number of fields of a model outside of its graph: versions, metadata, functions, and fields that hold the
graph."""
_LENGTH: Final = 2


@dataclass(frozen=True, slots=True)
class Field:
    """A field, or a run of scalar fields with one number: the offsets of its tag, its content and its end."""

    number: int
    start: int
    content: int
    end: int


class OnnxProto:
    """The fields of an ONNX model and of its graph."""

    def __init__(self, model: Model) -> None:
        """Read the fields; raise `Unsupported` unless the root of `model` is an ONNX model with a graph.

        Raise `LimitExceeded` if the model has more than 100,000 fields outside of its graph.
        """
        if model.proto is None or model.type != "onnx.ModelProto":
            raise Unsupported(f"The root is {model.type or 'not a protobuf'}, not an ONNX model: it has no ONNX files")
        self.model = model
        self.proto: RootProto = model.proto
        self.document = model.proto.document
        self.fields = self._fields("onnx.ModelProto", "", [(0, None)], _MOST_FIELDS)
        """All fields of the model."""
        graphs = [(field.content, field.end) for field in self.fields if field.number == GRAPH]
        if not graphs:
            raise Unsupported("The ONNX model has no graph")
        self.graph = self._fields("onnx.GraphProto", "graph", graphs)
        """All fields of the graph. Several fields of the model may together make up the graph."""

    @property
    def version(self) -> int:
        """The version of the model's format."""
        return int(self._skeleton.ir_version)

    @property
    def opsets(self) -> dict[str, int]:
        """The operator version of each domain."""
        return {each.domain: each.version for each in self._skeleton.opset_import}

    def bytes(self, start: int, end: int) -> Rope:
        """Return the bytes of the proto from `start` to `end`."""
        return Rope(self.document.at(start, end), self.proto.sources)

    @property
    def _skeleton(self) -> Any:
        (found,) = self.document.find(["onnx.ModelProto"])
        return schema.parsed(schema.bundled().message_class("onnx.ModelProto"), found.skeleton)

    def _fields(
        self, type_name: str, path: str, spans: Sequence[tuple[int, int | None]], most: int | None = None
    ) -> list[Field]:
        found = next((each for each in self.document.find([type_name], small=0) if each.path == path), None)
        places = [] if found is None else found.places
        if most is not None and len(places) > most:
            raise LimitExceeded(f"An {type_name} may have at most {most} fields, but this one has {len(places)} fields")
        return list(_in_order(places, spans, path))


def _in_order(
    places: Iterable[tuple[int, int, int, int, int]], spans: Sequence[tuple[int, int | None]], path: str
) -> Iterator[Field]:
    """Yield the fields at `places` of a message that consists of `spans`.

    A field starts where the field before it ends, so that it includes its tag.
    """
    following = iter(spans)
    at, last = next(following)
    for number, wire, start, end, _ in places:
        while last is not None and start > last:
            at, last = next(following, (start, None))
        if wire not in {0, 1, _LENGTH, 5} or start < at:
            raise CorruptModel("The fields of the message are not in order", start, path)
        yield Field(number, at, start, end)
        at = end


def declaration(proto: OnnxProto, field: Field) -> Any:
    """Return the ValueInfoProto in `field`; raise `LimitExceeded` if it has more than 1 MiB."""
    size = field.end - field.content
    if size > _LARGEST_DECLARATION:
        raise LimitExceeded(f"A ValueInfoProto may have at most {_LARGEST_DECLARATION} bytes, but this one has {size}")
    data = proto.bytes(field.content, field.end)
    return schema.parsed(schema.bundled().message_class("onnx.ValueInfoProto"), data.read())


def numbered(fields: Sequence[Field]) -> Iterator[tuple[tuple[int, int], Field]]:
    """Yield each field after a pair: its number, and its position among the fields with this number."""
    counts = dict[int, int]()
    for each in fields:
        place = counts.get(each.number, 0)
        counts[each.number] = place + 1
        yield (each.number, place), each


Changes = dict[str, "Rope | bytes | Changes"]
"""New contents of fields by name, such as `name` or, for repeated fields, `node[3]`.

The value for a message may also be the changes within the message.
"""
_LEADING: Final = ("Attribute", "Function", "Graph", "Node", "SparseTensor", "TrainingInfo")
"""The names of messages that can contain tensors."""


class Rewriting:
    """A writer that copies messages of a proto and replaces some of their fields."""

    def __init__(self, proto: OnnxProto) -> None:
        self._proto = proto

    @cached_property
    def _found(self) -> Mapping[str, _core.Finding]:
        kinds = [f"onnx.{name}Proto" for name in _LEADING]
        return {each.path: each for each in self._proto.document.find(kinds, small=0)}

    def message(
        self, type_name: str, path: str, fields: Sequence[Field], changes: Changes, kept: Collection[int] | None = None
    ) -> Iterator[Rope | bytes]:
        """Yield the content of the message at `path` with `changes` made.

        If `kept` is not None, yield only fields that begin at one of these offsets.
        """
        kinds: Any = schema.bundled().message_class(type_name).DESCRIPTOR.fields_by_number
        places, run = Counter[int](), list[Field]()
        for field in fields:
            kind, place = kinds.get(field.number), places[field.number]
            places[field.number] += 1
            if kept is not None and field.start not in kept:
                continue
            name = "" if kind is None else f"{kind.name}[{place}]" if kind.is_repeated else str(kind.name)
            if name not in changes:
                run.append(field)
                continue
            yield from joined_runs(self._proto, run)
            run = []
            if kind.is_repeated or not place:  # several fields may make up one message
                spans = [field] if kind.is_repeated else [each for each in fields if each.number == field.number]
                yield from self._changed(kind, f"{path}.{name}".lstrip("."), spans, changes[name])
        yield from joined_runs(self._proto, run)

    def _changed(
        self, kind: Any, path: str, spans: Sequence[Field], change: Rope | bytes | Changes
    ) -> Iterator[Rope | bytes]:
        if isinstance(change, dict):
            places = [(each.content, each.end) for each in spans]
            fields = [*_in_order(self._found[path].places, places, path)]
            change = Rope.joined(self.message(kind.message_type.full_name, path, fields, change))
        yield from wrapped(kind.number, change)


def joined_runs(proto: OnnxProto, fields: Sequence[Field]) -> Iterator[Rope]:
    """Yield the bytes of `fields`. Adjacent fields become one rope."""
    start = end = -1
    for field in fields:
        if field.start != end and end >= 0:
            yield proto.bytes(start, end)
        if field.start != end:
            start = field.start
        end = field.end
    if end >= 0:
        yield proto.bytes(start, end)


def without(message: bytes, numbers: Collection[int]) -> bytes:
    """Return the serialized `message` without the fields with these `numbers`. Other fields keep their bytes."""
    at, kept = 0, bytearray()
    while 0 <= at < len(message):
        start = at
        tag, at = varints.read(message, at)
        wire, size = tag & 7, 0
        if wire in {0, _LENGTH} and at > 0:
            size, at = varints.read(message, at)
        at += {1: 8, _LENGTH: size, 5: 4}.get(wire, 0) if at > 0 else 0
        if tag >> 3 not in numbers:
            kept += message[start : at if at >= 0 else None]
    return bytes(kept)


def wrapped(number: int, content: Rope | bytes) -> Iterator[Rope | bytes]:
    """Yield the field `number` with `content`: first its tag and length, then its content."""
    size = len(content) if isinstance(content, bytes) else content.size
    yield varints.write(number << 3 | _LENGTH) + varints.write(size)
    yield content

"""Detection of a file's kind and message type from its name and from a tolerant parse of its first 64 KiB."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Final, Literal

from google.protobuf.descriptor import FieldDescriptor as F

from protoslice import varints
from protoslice._core import Schema
from protoslice.detection import magic
from protoslice.schema.types import bundled
from protoslice.sources.source import RangeSource

FieldRow = tuple[int, str, int, bool, int, int]
"""A field of a type: number, name, type as in descriptor.proto, repeated, oneof number from 1, message or enum number.
"""

MAX_FIELDS = 600
"""Largest number of fields that one walk visits, which limits its time for a hostile file."""

MAX_DEPTH = 24
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED = {
    F.TYPE_DOUBLE: 8,
    F.TYPE_FIXED64: 8,
    F.TYPE_SFIXED64: 8,
    F.TYPE_FLOAT: 4,
    F.TYPE_FIXED32: 4,
    F.TYPE_SFIXED32: 4,
}
_WIRE_OF_SIZE = {8: _FIXED64, 4: _FIXED32}
_SIZE_OF_WIRE = {_FIXED64: 8, _FIXED32: 4}
_LENGTH_TYPES = {F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE}
_NARROW = {F.TYPE_INT32, F.TYPE_UINT32, F.TYPE_SINT32}
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r") | {127}


@dataclass(frozen=True, slots=True)
class TypeLookup:
    """The fields and enums of a type from the engine's table, indexed by field numbers."""

    fields: tuple[dict[int, FieldRow], ...]
    enums: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, table: Schema) -> TypeLookup:
        """Make the lookup for `table`."""
        fields = tuple({row[0]: row for row in rows} for _, _, rows in table.messages)
        return cls(fields, tuple(frozenset(values.values()) for values in table.enums))


@dataclass(slots=True)
class Evidence:
    """The result of a walk over a file's first bytes as if they were a message of a type.

    `weight` counts for the type, and `doubt` against it. `seen` contains the number paths of the fields that occur.
    `broken` is True when the fields of the root do not parse, so that the bytes are not a message of any type.
    """

    weight: float = 0.0
    doubt: float = 0.0
    seen: set[tuple[int, ...]] = field(default_factory=set)
    broken: bool = False

    @property
    def score(self) -> float:
        """The score for comparisons between types, in which doubt counts four times."""
        return self.weight - 4 * self.doubt


def score(head: bytes, shape: TypeLookup) -> Evidence:
    """Return the evidence for the root type of `shape` in a file that begins with `head`."""
    walk = _Walk(head, shape)
    walk.message(0, _ENDLESS, 0, ())
    return walk.found


_ENDLESS = 1 << 63
_CUT, _BAD = -1, -2


class _Walk:
    def __init__(self, head: bytes, shape: TypeLookup) -> None:
        self.head, self.shape, self.found, self.budget = head, shape, Evidence(), MAX_FIELDS

    def message(self, start: int, end: int, index: int, path: tuple[int, ...]) -> None:
        """Walk over the message from `start` to its declared `end`, which may lie beyond the head."""
        fields, met, at = self.shape.fields[index], set[int](), start
        while 0 <= at < min(end, len(self.head)) and self._goes_on():
            tag, at = self._varint(at)
            number = tag >> 3
            if at < 0 or not 0 < number < 1 << 29:
                self._broken(at, end)
                return
            row = fields.get(number)
            if row is not None:
                self._met(row, met, (*path, number))
            at = self._value(row, tag & 7, at, end, (*path, number))

    def _goes_on(self) -> bool:
        """Return False once the field limit is reached or the type is ruled out."""
        self.budget -= 1
        return self.budget >= 0 and self.found.doubt < 15 + self.found.weight

    def _broken(self, at: int, end: int) -> int:
        """Count a value that does not parse, unless the head ends within the value. Return `_BAD`."""
        if at != _CUT or end <= len(self.head):
            self.found.doubt += 1.5
            self.found.broken |= end == _ENDLESS
        return _BAD

    def _met(self, row: FieldRow, met: set[int], path: tuple[int, ...]) -> None:
        if row[0] in met and not row[3]:
            self.found.doubt += 2
        met.add(row[0])
        if len(path) <= 2:
            self.found.seen.add(path)

    def _value(self, row: FieldRow | None, wire: int, at: int, end: int, path: tuple[int, ...]) -> int:
        """Judge one value, and return the offset of the next field. It is negative if the message cannot go on."""
        size, value = _SIZE_OF_WIRE.get(wire, 0), 0
        if wire in (_VARINT, _LENGTH):
            value, at = self._varint(at)
            size = value if wire == _LENGTH else 0
        elif not size:
            return self._broken(_BAD, end)
        if at < 0 or at + size > end:
            return self._broken(at, end)
        if row is None:
            self.found.doubt += 4 if len(path) == 1 else 2
        else:
            self._judge(row, wire, (at, at + size, value), path)
        return at + size

    def _judge(self, row: FieldRow, wire: int, value: tuple[int, int, int], path: tuple[int, ...]) -> None:
        kind = row[2]
        if wire == _LENGTH and kind in _LENGTH_TYPES:
            self._length_delimited(row, value[0], value[1], path)
        elif wire == _LENGTH and row[3]:
            self._packed(kind, value[0], value[1])
        elif wire == _VARINT and kind not in _LENGTH_TYPES and kind not in _FIXED:
            self._number(row, value[2])
        elif wire == _WIRE_OF_SIZE.get(_FIXED.get(kind, 0)):
            self.found.weight += 0.25
        else:
            self.found.doubt += 10 if len(path) == 1 else 5

    def _length_delimited(self, row: FieldRow, start: int, end: int, path: tuple[int, ...]) -> None:
        if row[2] == F.TYPE_STRING:
            self._string(self.head[start:end], cut=end > len(self.head))
        elif row[2] == F.TYPE_BYTES or len(path) >= MAX_DEPTH or start == end:
            self.found.weight += 0.1
        else:
            self.found.weight += 0.5
            self.message(start, end, row[5], path)

    def _packed(self, kind: int, start: int, end: int) -> None:
        whole = (end - start) % _FIXED.get(kind, 1) == 0
        if kind not in _FIXED and start < end <= len(self.head):
            whole = self.head[end - 1] < 0x80
        self.found.weight += 0.25 if whole else 0
        self.found.doubt += 0 if whole else 4

    def _string(self, data: bytes, *, cut: bool) -> None:
        try:
            data.decode() if not cut else data[: max(len(data) - 3, 0)].decode(errors="strict")
        except UnicodeDecodeError as error:
            if not cut or error.start < len(data) - 6:
                self.found.doubt += 3
            return
        if any(byte in _CONTROL for byte in data[:256]):
            self.found.doubt += 3
        elif data:
            self.found.weight += 1 + min(len(data), 32) / 16

    def _number(self, row: FieldRow, value: int) -> None:
        kind = row[2]
        if kind == F.TYPE_ENUM:
            known = _signed32(value) in self.shape.enums[row[5]]
            self.found.weight += 0.5 if known else 0
            self.found.doubt += 0 if known else 1
        elif (kind == F.TYPE_BOOL and value > 1) or (kind in _NARROW and 1 << 32 <= value < (1 << 64) - (1 << 31)):
            self.found.doubt += 2
        else:
            self.found.weight += 0.25

    def _varint(self, at: int) -> tuple[int, int]:
        """Return the value and end of a varint.

        The end is `_CUT` if the head ends within the varint, and `_BAD` if it has more than ten bytes.
        """
        value, end = varints.read(self.head, at)
        if end < 0:
            return 0, _CUT if at + 10 >= len(self.head) else _BAD
        return value & 0xFFFF_FFFF_FFFF_FFFF, end


def _signed32(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


_MAX_OF_TENSOR = 64
"""Largest number of fields that a consistency check of values reads."""
_MAX_DIMS = 256

_Dims = Callable[[int, int, int, bytes], list[int]]

_TENSORFLOW_BITS = {1: 32, 2: 64, 3: 32, 4: 8, 5: 16, 6: 8, 8: 64, 9: 64, 10: 8, 14: 16, 17: 16, 18: 128, 19: 16}
_TENSORFLOW_BITS |= {22: 32, 23: 64, 24: 8, 25: 8, 26: 8, 27: 8, 28: 8, 29: 8, 30: 8, 31: 8, 32: 8, 33: 8}
_ONNX_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128}
_ONNX_BITS |= {16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6}
_TYPE_NAME = re.compile(rb"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def is_consistent(head: bytes, name: str) -> bool:
    """Return True when the values in `head` are consistent with the type `name`; False for types without a check."""
    if name == "tensorflow.TensorProto":
        return _is_tensor(head, dtype=1, content=4, bits=_TENSORFLOW_BITS, dims=_tensorflow_dims)
    if name == "onnx.TensorProto":
        return _is_tensor(head, dtype=2, content=9, bits=_ONNX_BITS, dims=_onnx_dims)
    return name == "xla.SplitProtoManifest" and _is_manifest(head)


def _is_manifest(head: bytes) -> bool:
    """Return True when the first field is a dotted type name and all other fields are field 2."""
    fields = list(_fields(head))
    named = bool(fields) and fields[0][:2] == (1, _LENGTH) and _TYPE_NAME.fullmatch(fields[0][3]) is not None
    return named and all(each[:2] == (2, _LENGTH) for each in fields[1:])


def _is_tensor(head: bytes, *, dtype: int, content: int, bits: dict[int, int], dims: _Dims) -> bool:
    """Return True when the length of a tensor's content matches its dtype and shape."""
    width, length, shape = 0, -1, list[int]()
    for number, wire, value, data in _fields(head):
        if number == dtype and wire == _VARINT:
            width = bits.get(value, 0)
        elif number == content and wire == _LENGTH:
            length = value
        else:
            shape += dims(number, wire, value, data)
    return width > 0 and length > 0 and bool(shape) and length == -(-math.prod(shape) * width // 8)


def _tensorflow_dims(number: int, wire: int, _value: int, data: bytes) -> list[int]:
    """Return the dimensions if the field is number 2, a TensorShapeProto; empty for other fields."""
    if number != 2 or wire != _LENGTH:
        return []
    sizes = [list(_fields(dim)) for each, kind, _, dim in _fields(data) if (each, kind) == (2, _LENGTH)]
    return [next((value for each, _, value, _ in dim if each == 1), 0) for dim in sizes]


def _onnx_dims(number: int, wire: int, value: int, data: bytes) -> list[int]:
    """Return the dimensions if the field is number 1, packed or not.

    Return nothing for other fields and for more than 256 dimensions.
    """
    if number != 1:
        return []
    sizes = [value] if wire == _VARINT else list(islice(_packed(data), _MAX_DIMS + 1))
    return sizes if len(sizes) <= _MAX_DIMS else []


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while 0 <= at < len(data):
        value, at = varints.read(data, at)
        if at > 0:
            yield value


def _fields(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the fields of a message as far as they parse.

    A field is yielded as its number, its wire type, its value or length, and its available bytes.
    """
    at = 0
    for _ in range(_MAX_OF_TENSOR):
        tag, at = varints.read(data, at)
        wire, start = tag & 7, at
        value = _SIZE_OF_WIRE.get(wire, -1)
        if at > 0 and wire in (_VARINT, _LENGTH):
            value, start = varints.read(data, at)
        if start < 0 or value < 0:
            return
        at = start if wire == _VARINT else start + value
        yield tag >> 3, wire, value, data[start:at]


HEAD = 64 * 1024
"""The number of bytes at the start of a file that detection reads. Detection ignores all further bytes."""

BY_NAME = 0.5
"""The confidence in a type that follows only from the file's name."""

_WARMUP: Final = "tf_serving_warmup_requests"
_EVENTS: Final = ".tfevents."
"""The common part of the names of event files. A time stamp and a machine name follow this part."""
TEXT: Final = (".pbtxt", ".textproto", ".txtpb")


@dataclass(frozen=True, slots=True)
class _Type:
    """A message type that files have: the fields that identify the type, and the usual names of its files."""

    type: str
    marks: tuple[str, ...] = ()
    """Alternative sets of fields. A file of the type contains all fields of at least one set.

    The set `2 1.3` means field 2, and field 3 within field 1. Many messages begin with a few strings or numbers, so
    only these fields distinguish the types. A type without marks is detected only by a file's name.
    """
    names: tuple[str, ...] = ()
    """The names of the type's files, and endings of names, which begin with a dot."""

    @property
    def sets(self) -> list[frozenset[tuple[int, ...]]]:
        """The parsed `marks`, as sets of field paths."""
        return [frozenset(tuple(map(int, path.split("."))) for path in each.split()) for each in self.marks]


_HLO: Final = (".hlo_proto.pb", ".hlo_snapshot.pb", ".hlo.pb", ".hlo")
_TYPES: Final = (
    _Type("tensorflow.SavedModel", ("2.1", "2.2", "2.5", "2.7"), ("saved_model.pb",)),
    _Type("tensorflow.GraphDef", ("1.2", "2.1", "1 4.1")),
    _Type("tensorflow.MetaGraphDef", ("1.2", "1.5", "1.4 2", "2.1"), (".meta",)),
    _Type("tensorflow.TensorProto", ("1 2",)),
    _Type("tensorflow.FingerprintDef", ("1 2 3 4",), ("fingerprint.pb",)),
    _Type("tensorflow.GraphDebugInfo", (), ("saved_model_debug_info.pb",)),
    _Type("tensorflow.serving.PredictionLog", (), (_WARMUP,)),
    _Type("tensorflow.CheckpointState", (), ("checkpoint",)),
    _Type("third_party.tensorflow.python.keras.protobuf.SavedMetadata", (), ("keras_metadata.pb",)),
    _Type("onnx.ModelProto", ("7", "1 8.2"), (".onnx",)),
    _Type("onnx.TensorProto", ("2 9", "1 2")),
    # An OptionalProto with a tensor has the same bytes as a SequenceProto with a tensor.
    _Type("onnx.SequenceProto", ("2 3.1 3.2", "2 3.2 3.9")),
    _Type("paddle.framework.proto.ProgramDesc", ("1.1 1.3", "1.1 1.4"), ("__model__", ".pdmodel")),
    _Type("CoreML.Specification.Model", ("1 2", "1 500", "1 502", "1 202"), (".mlmodel",)),
    _Type("caffe.NetParameter", ("100.1", "100.2", "2.4", "2.5", "2.1"), (".caffemodel", ".prototxt")),
    _Type("caffe.BlobProto", (), (".binaryproto",)),
    _Type("caffe.SolverState", (), (".solverstate",)),
    _Type("CNTK.proto.Dictionary", ("2.2",), (".dnn", ".cntk")),
    _Type("xla.HloModuleProto", ("3.2", "1 2 3"), _HLO),
    _Type("xla.HloProto", ("1.3", "1.1 1.2"), _HLO),
    _Type("xla.HloSnapshot", ("1.1",), _HLO),
    _Type("xla.HloUnoptimizedSnapshot", ("1.3 2",), (*_HLO, ".hlo_unoptimized_snapshot.pb")),
    _Type("xla.SplitProtoManifest", ("1 2.2", "1 2.3")),
    _Type(
        "google.protobuf.FileDescriptorSet",
        ("1.1 1.4", "1.1 1.5", "1.1 1.6", "1.1 1.12"),
        (".desc", ".fds", ".protoset", ".binpb"),
    ),
)
"""All types that detection knows. Of two types with the same score, the earlier one wins."""

_MARKS: Final = {row.type: row.sets for row in _TYPES if row.marks}
CANDIDATES: Final = tuple(_MARKS)
"""The types that detection tries for a file of any name."""
_NAMED: Final = {
    name: tuple(row.type for row in _TYPES if name in row.names) for known in _TYPES for name in known.names
}

_EXAMPLE: Final = "tensorflow.Example"
_WEIGHT: Final = 3
"""The least weight of evidence for an `Example`. A record with one small feature reaches it."""
_FEATURE: Final = (1, 1)

Kind = Literal[
    "proto", "riegeli", "table", "tfrecord", "paddle", "safetensors", "gguf", "text", "json", "refused", "unknown"
]


@dataclass(frozen=True, slots=True)
class Detection:
    """The detected kind and type of a file.

    `kind` is one of these:

    - `proto`: a message, whose type may be unknown
    - `riegeli`: a chunked or split proto, or records
    - `table`: the index of a tensor bundle
    - `tfrecord`: records in TensorFlow's framing
    - `paddle`: a parameter file
    - `safetensors`: a file, or the JSON index that maps tensors to files
    - `gguf`: a GGUF file
    - `text`: a proto in text format
    - `json`: a JSON file
    - `refused`: a file that is not supported; `why` suggests a remedy
    - `unknown`: any other file

    `confidence` is a number from 0 to 1.
    """

    kind: Kind
    type_name: str | None
    why: str
    confidence: float


def detect(head: bytes, filename: str | None = None, size: int | None = None) -> Detection:
    """Detect the kind and type of a file of `size` bytes from its name and its first bytes `head`.

    Only the first 64 KiB are used.
    """
    head = bytes(head[:HEAD])
    if not head:  # an empty file is a valid message of any type, and its name alone does not make it a model
        return Detection("unknown", None, "the file is empty", 0.0)
    refused = magic.refused_format(head, size)
    if refused is not None:
        return Detection("refused", None, f"this is {refused}", 1.0)
    if head.startswith(magic.GGUF_MAGIC):
        return Detection("gguf", magic.GGUF, "the file starts with GGUF", 1.0)
    if magic.is_safetensors(head, size):
        return Detection("safetensors", magic.SAFETENSORS, "the file has the header of a safetensors file", 0.95)
    if magic.is_riegeli(head):
        return Detection("riegeli", None, "the file starts with the riegeli signature", 1.0)
    if magic.is_tfrecord(head):
        of = detect_message(magic.first_tfrecord(head), filename)
        type_name = of.type_name if of.confidence > BY_NAME or is_record_name(filename) else None
        return Detection("tfrecord", type_name, "the file starts with a valid TFRecord length", 1.0)
    if magic.is_table(head, size):
        return Detection("table", None, "the file has the layout of a tensor bundle index", 0.95)
    if magic.is_parameters(head):
        return Detection("paddle", None, "the file has the layout of a Paddle parameter file", 0.95)
    if not head.strip():
        return Detection("refused", None, "this is blank text", 0.9)
    content = magic.decoded(head)
    return detect_message(head, filename) if content is None else _text(content, head, filename)


def look_at(source: RangeSource, filename: str | None) -> Detection:
    """Detect the kind and type of `source` from its first bytes and `filename`."""
    return detect(source.read(0, min(source.size, HEAD)), filename, source.size)


def detect_message(head: bytes, filename: str | None = None) -> Detection:
    """Detect the type of the message that begins with `head`.

    The message may be a raw proto, chunk 0 of a chunked proto, or the first record of a stream.
    """
    head = bytes(head[:HEAD])
    named = types_by_name(filename)
    found = {name: _evidence(head, name) for name in dict.fromkeys((*named, *CANDIDATES))}
    eligible = [name for name in found if name in named or has_required_fields(name, found[name])]
    ranked = sorted(eligible, key=lambda name: found[name].score + 0.5 * (name in named), reverse=True)
    if ranked and _convinces(found[ranked[0]]) and _stands_out(ranked, found):
        best = ranked[0]
        also = " and file name" if best in named else ""
        return Detection("proto", best, f"detected by fields{also}", 0.99 if best in named else 0.9)
    return _by_name(head, named, found)


def detect_record(record: bytes) -> str | None:
    """Return the full name of the type of a whole `record`; None if no type or several types fit.

    Unlike files, records may be a `tensorflow.Example`. This type has few fields, so all fields of the record must fit.
    """
    found = detect_message(record)
    if found.type_name is not None and found.confidence > BY_NAME:
        return found.type_name
    evidence = score(record, _shape(_EXAMPLE))
    fits = evidence.weight >= _WEIGHT and evidence.doubt == 0 and _FEATURE in evidence.seen
    return _EXAMPLE if fits else None


def candidates() -> tuple[str, ...]:
    """Return all types that detection tries for a file of any name."""
    return tuple(CANDIDATES)


def _evidence(head: bytes, name: str) -> Evidence:
    evidence = score(head, _shape(name))
    if is_consistent(head, name):
        evidence.weight += 8
    return evidence


def _convinces(evidence: Evidence) -> bool:
    return evidence.weight >= 5 and evidence.doubt <= 0.25 * evidence.weight


def _stands_out(ranked: list[str], found: dict[str, Evidence]) -> bool:
    """Return True when the best score is at least 1.5 times the best score of a type from another package."""
    rivals = [name for name in ranked[1:] if name.rpartition(".")[0] != ranked[0].rpartition(".")[0]]
    return not rivals or found[ranked[0]].score >= 1.5 * found[rivals[0]].score


def _by_name(head: bytes, named: tuple[str, ...], found: dict[str, Evidence]) -> Detection:
    fitting = [name for name in named if not found[name].broken and found[name].doubt <= 2 + 0.5 * found[name].weight]
    if fitting:
        best = max(fitting, key=lambda name: found[name].score)
        return Detection("proto", best, "detected by file name", BY_NAME)
    if not head:
        return Detection("unknown", None, "the file is empty and of unknown type: pass its type", 0.0)
    if named:
        return Detection("unknown", None, f"the file name suggests {named[0]}, but the content does not fit", 0.0)
    return Detection("unknown", None, "unknown type: pass its type if it is a protobuf", 0.0)


def _text(content: str, head: bytes, filename: str | None) -> Detection:
    """Detect the kind and type of `head`, which is text with the decoded form `content`."""
    if magic.is_json(content) and magic.is_index(base_name(filename), content):
        return Detection("safetensors", magic.SAFETENSORS, "the file lists the safetensors files of a model", 0.95)
    if magic.is_json_program(head):
        return Detection("json", magic.PROGRAM, "this is a program of Paddle 3 in JSON", 0.95)
    if magic.is_json(content):
        return Detection("json", None, "this is JSON", 0.9)
    outer = magic.outer_fields(content)
    if outer:
        named = types_by_name(filename)
        best = next((name for name in (*named, *CANDIDATES) if outer <= _field_names(name)), None)
        if best is not None:
            return Detection("text", best, "this is a message in text format", 0.9)
        return Detection("text", None, "this may be a message in text format: pass its type", 0.5)
    found = detect_message(head, filename)
    # Text may also be a binary proto: a string in field 1 begins with 0x0A, which is a line feed.
    if found.confidence > BY_NAME or head[:1] == b"\n":
        return found
    return Detection("refused", None, "this is plain text", 0.9)


@cache
def _shape(name: str) -> TypeLookup:
    return TypeLookup.of(bundled().flat(name))


@cache
def _field_names(name: str) -> frozenset[str]:
    return frozenset(row[1] for row in bundled().flat(name).messages[0][2])


def has_required_fields(name: str, evidence: Evidence) -> bool:
    """Return True when `evidence` contains the fields that identify the type `name`, or if no fields identify it."""
    return name not in _MARKS or any(marks <= evidence.seen for marks in _MARKS[name])


def types_by_name(filename: str | None) -> tuple[str, ...]:
    """Return the usual types of a file with this name, the likeliest first; empty if the name suggests no type."""
    name = base_name(filename)
    for ending in (".cpb", *TEXT):
        if name.endswith(ending):
            name = name.removesuffix(ending) + ".pb"
    if _EVENTS in name:
        return ("tensorflow.Event",)
    if name in _NAMED:
        return _NAMED[name]
    endings = ((each, types) for each, types in _NAMED.items() if each.startswith("."))
    plain = name.removesuffix(".pb")
    return next((types for each, types in endings if name.endswith(each) or plain.endswith(each)), ())


def is_record_name(filename: str | None) -> bool:
    """Return True when a file with this name holds records, not a single message."""
    name = base_name(filename)
    return name == _WARMUP or _EVENTS in name


def is_text_name(filename: str | None) -> bool:
    """Return True when a text file with this name is a proto in text format."""
    return base_name(filename).endswith((*TEXT, ".prototxt")) or bool(types_by_name(filename))


def base_name(filename: str | None) -> str:
    """Return the last segment of a path, in lower case; empty for None."""
    return (filename or "").replace("\\", "/").rpartition("/")[2].lower()

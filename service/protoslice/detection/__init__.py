"""Detection of a file's kind and message type from its first kilobytes and its name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from protoslice.detection import magic
from protoslice.detection.probe import Evidence, TypeLookup, is_consistent, score
from protoslice.schema.types import bundled
from protoslice.sources.source import RangeSource

HEAD = 64 * 1024
"""Bytes at the start of a file that detection looks at; any beyond are ignored."""

BY_NAME = 0.5
"""Confidence in a type that is known from the file's name alone."""

_WARMUP: Final = "tf_serving_warmup_requests"
_EVENTS: Final = ".tfevents."
"""Part of the names of event files, which end in a time and a machine."""
TEXT: Final = (".pbtxt", ".textproto", ".txtpb")


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of whole files: how it is recognized by its fields, and what its files are called."""

    type: str
    marks: tuple[str, ...] = ()
    """Alternative sets of fields, all of which a file has: `2 1.3` is field 2, and field 3 within field 1.

    Many messages begin with a few strings or numbers; these fields distinguish the types. Without any, a file is of
    the type only if its name says so.
    """
    names: tuple[str, ...] = ()
    """Names of its files, and endings, which begin with a dot."""

    @property
    def sets(self) -> list[frozenset[tuple[int, ...]]]:
        """`marks`, parsed."""
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
    # An OptionalProto of a tensor is the same on the wire.
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
"""One row for each type; of two with the same score, the earlier one is taken."""

_MARKS: Final = {row.type: row.sets for row in _TYPES if row.marks}
CANDIDATES: Final = tuple(_MARKS)
"""Types that a file of any name may have."""
_NAMED: Final = {
    name: tuple(row.type for row in _TYPES if name in row.names) for known in _TYPES for name in known.names
}

_EXAMPLE: Final = "tensorflow.Example"
_WEIGHT: Final = 3
"""Evidence for a record of one small feature."""
_FEATURE: Final = (1, 1)

Kind = Literal[
    "proto", "riegeli", "table", "tfrecord", "paddle", "safetensors", "gguf", "text", "json", "refused", "unknown"
]


@dataclass(frozen=True, slots=True)
class Detection:
    """Kind and type of a file, as detected.

    `kind` is `proto` (with its type when known), `riegeli` (chunked or split protos, records), `table` (a tensor
    bundle's index), `tfrecord`, `paddle` (a parameter file), `safetensors` (a file, or the JSON that says which file
    has which tensor), `gguf`, `text` (a proto in text format), `json`, `refused` (`why` says what to do
    instead) or `unknown`. `confidence` runs from 0 to 1.
    """

    kind: Kind
    type_name: str | None
    why: str
    confidence: float


def detect(head: bytes, filename: str | None = None, size: int | None = None) -> Detection:
    """Kind and type of a file of `size` bytes, from its name and its first bytes `head`: 64 KiB suffice."""
    head = bytes(head[:HEAD])
    if not head:  # an empty message is valid, but says nothing: the name alone makes no model of it
        return Detection("unknown", None, "the file is empty", 0.0)
    refused = magic.refused_format(head, size)
    if refused is not None:
        return Detection("refused", None, f"this is {refused}", 1.0)
    if head.startswith(magic.GGUF_MAGIC):
        return Detection("gguf", magic.GGUF, "starts with GGUF", 1.0)
    if magic.is_safetensors(head, size):
        return Detection("safetensors", magic.SAFETENSORS, "has the header of a safetensors file", 0.95)
    if magic.is_riegeli(head):
        return Detection("riegeli", None, "starts with the riegeli signature", 1.0)
    if magic.is_tfrecord(head):
        of = detect_message(magic.first_tfrecord(head), filename)
        type_name = of.type_name if of.confidence > BY_NAME or is_record_name(filename) else None
        return Detection("tfrecord", type_name, "starts with a valid TFRecord length", 1.0)
    if magic.is_table(head, size):
        return Detection("table", None, "has the layout of a tensor bundle index", 0.95)
    if magic.is_parameters(head):
        return Detection("paddle", None, "has the layout of a Paddle parameter file", 0.95)
    if not head.strip():
        return Detection("refused", None, "this is blank text", 0.9)
    content = magic.decoded(head)
    return detect_message(head, filename) if content is None else _text(content, head, filename)


def look_at(source: RangeSource, filename: str | None) -> Detection:
    """Return the kind and type of `source`, detected from its first bytes and `filename`."""
    return detect(source.read(0, min(source.size, HEAD)), filename, source.size)


def detect_message(head: bytes, filename: str | None = None) -> Detection:
    """The message type that `head` begins: a raw proto, chunk 0 of a chunked one, or a first record."""
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
    """Full name of the type of a whole `record`; None for a record that fits none or several.

    Unlike a file, a record is tried as `tensorflow.Example` too: its fields are few, so that all of them must fit.
    """
    found = detect_message(record)
    if found.type_name is not None and found.confidence > BY_NAME:
        return found.type_name
    evidence = score(record, _shape(_EXAMPLE))
    fits = evidence.weight >= _WEIGHT and evidence.doubt == 0 and _FEATURE in evidence.seen
    return _EXAMPLE if fits else None


def candidates() -> tuple[str, ...]:
    """All types that detection tries for a file of any name."""
    return tuple(CANDIDATES)


def _evidence(head: bytes, name: str) -> Evidence:
    evidence = score(head, _shape(name))
    if is_consistent(head, name):
        evidence.weight += 8
    return evidence


def _convinces(evidence: Evidence) -> bool:
    return evidence.weight >= 5 and evidence.doubt <= 0.25 * evidence.weight


def _stands_out(ranked: list[str], found: dict[str, Evidence]) -> bool:
    """True when the best score is 1.5 times that of the next type from another package."""
    rivals = [name for name in ranked[1:] if name.rpartition(".")[0] != ranked[0].rpartition(".")[0]]
    return not rivals or found[ranked[0]].score >= 1.5 * found[rivals[0]].score


def _by_name(head: bytes, named: tuple[str, ...], found: dict[str, Evidence]) -> Detection:
    fitting = [name for name in named if not found[name].broken and found[name].doubt <= 2 + 0.5 * found[name].weight]
    if fitting:
        best = max(fitting, key=lambda name: found[name].score)
        return Detection("proto", best, "detected by file name", BY_NAME)
    if not head:
        return Detection("unknown", None, "empty file of unknown type: pass its type", 0.0)
    if named:
        return Detection("unknown", None, f"the file name suggests {named[0]}, but the content does not fit", 0.0)
    return Detection("unknown", None, "unknown type: pass its type if it is a protobuf", 0.0)


def _text(content: str, head: bytes, filename: str | None) -> Detection:
    """Kind and type of `head`, whose decoded form is `content`: JSON, text format, or refused plain text."""
    if magic.is_json(content) and magic.is_index(base_name(filename), content):
        return Detection("safetensors", magic.SAFETENSORS, "lists the safetensors files of a model", 0.95)
    if magic.is_json_program(head):
        return Detection("json", magic.PROGRAM, "this is a program of Paddle 3 in JSON", 0.95)
    if magic.is_json(content):
        return Detection("json", None, "this is JSON", 0.9)
    outer = magic.outer_fields(content)
    if outer:
        named = types_by_name(filename)
        best = next((name for name in (*named, *CANDIDATES) if outer <= _field_names(name)), None)
        if best is not None:
            return Detection("text", best, "a message in text format", 0.9)
        return Detection("text", None, "this may be a message in text format: pass its type", 0.5)
    found = detect_message(head, filename)
    # Bytes that decode as text may be a binary proto: field 1 with a string begins with 0x0A, a line feed.
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
    """True when `evidence` has the fields required of `name`, and for types without requirements."""
    return name not in _MARKS or any(marks <= evidence.seen for marks in _MARKS[name])


def types_by_name(filename: str | None) -> tuple[str, ...]:
    """Usual types of a file with this name, the likeliest first; empty if the name has no meaning."""
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
    """True when a file of this name holds records and not one message."""
    name = base_name(filename)
    return name == _WARMUP or _EVENTS in name


def is_text_name(filename: str | None) -> bool:
    """True when a text file of this name is a proto in text format."""
    return base_name(filename).endswith((*TEXT, ".prototxt")) or bool(types_by_name(filename))


def base_name(filename: str | None) -> str:
    """The last segment of a path, in lower case; empty for None."""
    return (filename or "").replace("\\", "/").rpartition("/")[2].lower()

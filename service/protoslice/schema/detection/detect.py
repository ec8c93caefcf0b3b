"""Detection of a file's kind and message type from its first kilobytes and its name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from protoslice.schema.detection import magic, names, paddle, text, weights
from protoslice.schema.detection.agreement import agrees
from protoslice.schema.detection.probe import Evidence, TypeLookup, probe
from protoslice.schema.detection.roots import CANDIDATES, shows_marks
from protoslice.schema.registry import bundled

HEAD = 64 * 1024
"""Bytes at the start of a file that detection looks at; any beyond are ignored."""

BY_NAME = 0.5
"""Confidence in a type that is known from the file's name alone."""

Kind = Literal[
    "proto", "riegeli", "table", "tfrecord", "paddle", "safetensors", "gguf", "text", "json", "refused", "unknown"
]


@dataclass(frozen=True, slots=True)
class Detection:
    """Kind and type of a file, as detected.

    `kind` is `proto` (with its type when known), `riegeli` (chunked or split protos, records), `table` (a tensor
    bundle's index), `tfrecord`, `paddle` (a parameter file), `safetensors` (a file, or the JSON that says which file
    has which tensor), `gguf`, `text` (a proto in text format), `json`, `refused` (`why`
    says what to do instead) or `unknown`. `confidence` runs from 0 to 1.
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
    if head.startswith(weights.GGUF_MAGIC):
        return Detection("gguf", weights.GGUF, "starts with GGUF", 1.0)
    if weights.is_safetensors(head, size):
        return Detection("safetensors", weights.SAFETENSORS, "has the header of a safetensors file", 0.95)
    if magic.is_riegeli(head):
        return Detection("riegeli", None, "starts with the riegeli signature", 1.0)
    if magic.is_tfrecord(head):
        of = detect_message(magic.first_tfrecord(head), filename)
        type_name = of.type_name if of.confidence > BY_NAME or names.means_records(filename) else None
        return Detection("tfrecord", type_name, "starts with a valid TFRecord length", 1.0)
    if magic.is_table(head, size):
        return Detection("table", None, "has the layout of a tensor bundle index", 0.95)
    if paddle.is_parameters(head):
        return Detection("paddle", None, "has the layout of a Paddle parameter file", 0.95)
    if head and not head.strip():
        return Detection("refused", None, "this is blank text", 0.9)
    content = text.decoded(head)
    return detect_message(head, filename) if content is None else _text(content, head, filename)


def detect_message(head: bytes, filename: str | None = None) -> Detection:
    """The message type that `head` begins: a raw proto, chunk 0 of a chunked one, or a first record."""
    head = bytes(head[:HEAD])
    named = names.usual_types(filename)
    found = {name: _evidence(head, name) for name in dict.fromkeys((*named, *CANDIDATES))}
    eligible = [name for name in found if name in named or shows_marks(name, found[name])]
    ranked = sorted(eligible, key=lambda name: found[name].score + 0.5 * (name in named), reverse=True)
    if ranked and _convinces(found[ranked[0]]) and _stands_out(ranked, found):
        best = ranked[0]
        also = " and file name" if best in named else ""
        return Detection("proto", best, f"detected by fields{also}", 0.99 if best in named else 0.9)
    return _by_name(head, named, found)


def candidates() -> tuple[str, ...]:
    """All types that detection tries for any file, whatever its name."""
    return tuple(CANDIDATES)


def _evidence(head: bytes, name: str) -> Evidence:
    evidence = probe(head, _shape(name))
    if agrees(head, name):
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
    if text.is_json(content) and weights.is_index(names.base_name(filename), content):
        return Detection("safetensors", weights.SAFETENSORS, "lists the safetensors files of a model", 0.95)
    if paddle.is_json_program(head):
        return Detection("json", paddle.PROGRAM, "this is a program of Paddle 3 in JSON", 0.95)
    if text.is_json(content):
        return Detection("json", None, "this is JSON", 0.9)
    outer = text.outer_fields(content)
    if outer:
        named = names.usual_types(filename)
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

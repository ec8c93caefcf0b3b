"""Preparation of a root: index, plan and image, made from a file in storage. Blocking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from protoslice import _core, schema
from protoslice.detection import BY_NAME, is_text_name
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.formats.registry import formats_of
from protoslice.library.indexing import Decoded, Indexed, IndexingTerms, ProtoFile, Side, decode, index
from protoslice.schema.text_worker import serialized_apart
from protoslice.sources.source import RangeSource
from protoslice.stores.ingest.file_writer import IngestedFile
from protoslice.stores.ingest.root.rules import planned
from protoslice.stores.options import RulesByType
from protoslice.stores.requests import IngestRequest
from protoslice.stores.schemas import Types
from protoslice.tensors.model import Model

_TEXT_AT_ONCE: Final = 64 << 10
"""Text up to this size is parsed in this process, in some milliseconds.

Longer text would hold the GIL too long.
"""
_DECODED_RATIO: Final = 128
"""Decoded bytes per byte of a compressed chunked proto, at most."""
_DECODED_FREE: Final = 16 << 20
"""Decoded bytes that a compressed chunked proto of any size may have."""
_DECODED_HELD: Final = 64 << 20
"""Memory of decoding a chunk that cannot be decoded in pieces, at most.

It is taken two or three times.
"""
_NOT_PROTOS: Final = ("text", "json", "table", "tfrecord", "paddle", "safetensors", "gguf")
"""Kinds of root stored without an index, for formats that read them directly."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Records of a root, stored beside the files."""

    type: str | None
    index: bytes
    plan: bytes
    chunks: int
    schema: schema.TypeSchema | None
    """Schema that the root is read by; None for a root of unknown type."""
    image: bytes | None = None
    kept: bool = False
    """True when the plan is the one that a chunked root came with."""
    merged: bool = False
    """True for a chunked root, whose image is its chunks merged."""
    rules: tuple[str, ...] = ()
    """Rules of the plan, in canonical form."""


class NotARoot(Exception):
    """Refusal of a file as root, for the reason `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class BoundedSide(Side, Protocol):
    """Destination of decoded bytes with a limit."""

    @property
    def room(self) -> int:
        """Bytes that may be written, at most."""


def prepare_root(
    source: RangeSource,
    received: IngestedFile,
    side: BoundedSide,
    types: Types,
    request: IngestRequest,
    *,
    kept_rules: RulesByType,
    texts: bool,
) -> Prepared | None:
    """Prepare a root; None for a file that is no proto but that a format reads.

    Raises `NotARoot` for any other file, and for one that does not parse when only weak evidence called it a proto.
    `kept_rules` are those of roots for which the request gives none; `texts` allows parsing a text of known type.
    """
    detection = received.detection
    text_type = request.type_or(detection.type_name) if texts and detection.kind == "text" else None
    if detection.kind in _NOT_PROTOS and request.type is None and text_type is None:
        _check_known(source, received, request)
        return None
    if not source.size and detection.kind == "unknown" and not request.names_a_root:
        raise NotARoot("the file is empty")
    file = _file(source, received, request, text_type)
    terms = _terms(file, received, side, types)
    found = _index(_decode(file, side, terms, request), received, terms, request)
    plan, rules = found.own_plan() if request.plan is None and not request.rules else None, tuple[str, ...]()
    if plan is None:
        document = _core.Document(_core.Index(found.index), found.flat, found.sources, found.image)
        plan, rules = planned(document, found.type, request, kept_rules)
    image = None if found.image is None else found.image.encode()
    return Prepared(
        found.type,
        found.index,
        plan.encode(),
        len(plan),
        types.of(found.type) if found.type else None,
        image,
        kept=plan.kept,
        merged=found.chunked is not None,
        rules=rules,
    )


def _check_known(source: RangeSource, received: IngestedFile, request: IngestRequest) -> None:
    """Raise `NotARoot` for a file that no format reads as a root, unless the request names a root."""
    path, detection = received.info.path, received.detection
    if request.rules:
        raise NotARoot("split rules only apply to protobufs, but the root file is not one: leave out the rules")
    if not request.names_a_root and not formats_of(Model(path, detection.type_name, {path: source}, None, detection)):
        raise NotARoot(f"{detection.why}; files of this kind are not supported as models")


def _file(source: RangeSource, received: IngestedFile, request: IngestRequest, text_type: str | None) -> ProtoFile:
    path = received.info.path
    if received.detection.kind == "riegeli":
        return ProtoFile(source, "chunked", request.type_or(None), name=path, tell=request.type is None)
    if text_type is not None:
        return ProtoFile(source, "text", text_type, name=path)
    return ProtoFile(source, "serialized", request.type_or(received.scan.type if received.scan else None))


def _terms(file: ProtoFile, received: IngestedFile, side: BoundedSide, types: Types) -> IndexingTerms:
    """Limits for an untrusted file, and its index when the scan during upload made one."""
    most = min(side.room, _DECODED_FREE + _DECODED_RATIO * file.source.size)
    scanned = received.scan if file.form == "serialized" else None
    return IndexingTerms(
        types,
        decoding=_core.Limits(decoded=1 << 62, held=_DECODED_HELD, side=most),
        parse=schema.serialized if file.source.size <= _TEXT_AT_ONCE else serialized_apart,
        index=scanned.index if scanned is not None and scanned.type == file.type else None,
    )


def _decode(file: ProtoFile, side: BoundedSide, terms: IndexingTerms, request: IngestRequest) -> Decoded:
    try:
        return decode(file, side, terms)
    except Unsupported as error:
        # A subclass comes from the side, which refuses the bytes of a valid chunked proto.
        if file.form == "chunked" and type(error) is Unsupported:
            raise NotARoot(error.message) from error
        raise
    except CorruptModel as error:
        if file.form == "text" and request.type is None and not is_text_name(file.name or ""):
            raise NotARoot(f"{error.message}: not a valid message in text format") from error
        raise


def _index(decoded: Decoded, received: IngestedFile, terms: IndexingTerms, request: IngestRequest) -> Indexed:
    file, scan = decoded.file, received.scan
    try:
        if file.form == "serialized" and scan is not None and scan.error is not None and scan.type == file.type:
            raise scan.error
        return index(decoded, terms)
    except (CorruptModel, LimitExceeded) as error:
        sure = request.names_a_root or received.detection.confidence > BY_NAME
        if sure or file.form != "serialized":
            raise
        raise NotARoot(f"{received.detection.why}, but it does not parse as a message: {error}") from error

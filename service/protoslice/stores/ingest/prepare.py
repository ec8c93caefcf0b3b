"""The index, the plan and the image of a root, made of a file that has arrived. Blocking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from protoslice import _core, schema
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.formats.model import Model
from protoslice.formats.registry import formats_of
from protoslice.indexing import Decoded, Indexed, IndexingTerms, ProtoFile, Side, decode, index
from protoslice.schema.detection.detect import BY_NAME
from protoslice.schema.detection.names import means_text
from protoslice.schema.text_worker import serialized_apart
from protoslice.sources import RangeSource
from protoslice.stores.ingest.receive import Received, Types
from protoslice.stores.requests import IngestRequest

__all__ = ["NotARoot", "Prepared", "prepare_root"]

_TEXT_AT_ONCE: Final = 64 << 10
"""Bytes of text that are parsed here: some milliseconds. Longer text holds the interpreter's lock for too long."""
_DECODED_RATIO: Final = 128
"""Bytes that a byte of a compressed chunked proto may decode to; who has better ratios sends it without compression."""
_DECODED_FREE: Final = 16 << 20
"""Bytes that a compressed chunked proto of any size may decode to."""
_DECODED_HELD: Final = 64 << 20
"""Bytes of memory that decoding takes at most, twice or thrice: for chunks that cannot be decoded in pieces."""
_NOT_PROTOS: Final = ("text", "json", "table", "tfrecord")
"""Kinds of root that are kept without an index: formats know what to do with them."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is kept beside the files of a store."""

    type: str | None
    index: bytes
    plan: bytes
    chunks: int
    schema: schema.TypeSchema | None
    """The schema that the root is read by; None for a root of unknown type."""
    image: bytes | None = None


class NotARoot(Exception):
    """The file holds no proto that can be the root of a store, for the reason `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class BoundedSide(Side, Protocol):
    """The place for decoded bytes, of which it takes so many."""

    @property
    def room(self) -> int:
        """The most bytes that may be written."""


def prepare_root(
    source: RangeSource, received: Received, side: BoundedSide, types: Types, request: IngestRequest, *, texts: bool
) -> Prepared | None:
    """The index, the plan and the image of a root; None for a file that a format knows, and that is no proto.

    `NotARoot` for any other file, and for one that does not parse where little said that it is a proto. `texts` says
    whether a text is parsed where its type is known.
    """
    detection = received.detection
    text_type = request.type_or(detection.type_name) if texts and detection.kind == "text" else None
    if detection.kind in _NOT_PROTOS and request.type is None and text_type is None:
        _check_known(source, received, request)
        return None
    if not source.size and detection.kind == "unknown" and not request.names_a_root:
        raise NotARoot("it is empty")
    file = _file(source, received, request, text_type)
    terms = _terms(file, received, side, types)
    found = _index(_decode(file, side, terms, request), received, terms, request)
    plan = _core.Document(_core.Index(found.index), found.flat, found.sources, found.image).plan(
        request.min_chunk, request.max_chunk
    )
    image = None if found.image is None else found.image.encode()
    return Prepared(
        found.type, found.index, plan.encode(), len(plan), types.of(found.type) if found.type else None, image
    )


def _check_known(source: RangeSource, received: Received, request: IngestRequest) -> None:
    """`NotARoot` for a file without an index that no format wants as a root, unless the request names one."""
    path, detection = received.info.path, received.detection
    if not request.names_a_root and not formats_of(Model(path, detection.type_name, {path: source}, None)):
        raise NotARoot(f"{detection.why}, and no format knows such a file")


def _file(source: RangeSource, received: Received, request: IngestRequest, text_type: str | None) -> ProtoFile:
    path = received.info.path
    if received.detection.kind == "riegeli":
        return ProtoFile(source, "chunked", request.type_or(None), name=path, tell=request.type is None)
    if text_type is not None:
        return ProtoFile(source, "text", text_type, name=path)
    return ProtoFile(source, "serialized", request.type_or(received.scan.type if received.scan else None))


def _terms(file: ProtoFile, received: Received, side: BoundedSide, types: Types) -> IndexingTerms:
    """The bounds for a file from a stranger, and its index where a scan on the way in has made that."""
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
        # A class below `Unsupported` comes from the side, which refuses bytes of what is a chunked proto.
        if file.form == "chunked" and type(error) is Unsupported:
            raise NotARoot(error.message) from error
        raise
    except CorruptModel as error:
        if file.form == "text" and request.type is None and not means_text(file.name or ""):
            raise NotARoot(f"{error.message}, so it only looked like a message in text format") from error
        raise


def _index(decoded: Decoded, received: Received, terms: IndexingTerms, request: IngestRequest) -> Indexed:
    file, scan = decoded.file, received.scan
    try:
        if file.form == "serialized" and scan is not None and scan.error is not None and scan.type == file.type:
            raise scan.error
        return index(decoded, terms)
    except (CorruptModel, LimitExceeded) as error:
        sure = request.names_a_root or received.detection.confidence > BY_NAME
        if sure or file.form != "serialized":
            raise
        raise NotARoot(f"{received.detection.why}, and it does not parse as a message: {error}") from error

"""Making a store out of the files that have arrived: index, plan, and the image of a chunked proto. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from protoslice import _core, schema
from protoslice.chunked import tell_type
from protoslice.concurrency.executor import Worker
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.formats.model import Model
from protoslice.formats.registry import formats_of
from protoslice.schema.detection.detect import BY_NAME
from protoslice.schema.text_worker import serialized_apart
from protoslice.sources import RangeSource
from protoslice.storage import Writer
from protoslice.stores.ingest.receive import Received, Scan, Types
from protoslice.stores.requests import IngestRequest

__all__ = [
    "NOT_PROTOS",
    "NotARoot",
    "Prepared",
    "SideWriter",
    "binary_of",
    "chunked_of",
    "prepare_chunked",
    "prepare_found",
    "prepare_text",
]

_TEXT_AT_ONCE: Final = 64 << 10
"""Bytes of text that are parsed here: some milliseconds. Longer text holds the interpreter's lock for too long."""
_DECODED_RATIO: Final = 128
"""Bytes that a byte of a compressed chunked proto may decode to; who has better ratios sends it without compression."""
_DECODED_FREE: Final = 16 << 20
"""Bytes that a compressed chunked proto of any size may decode to."""
_DECODED_HELD: Final = 64 << 20
"""Bytes of memory that decoding takes at most, twice or thrice: for chunks that cannot be decoded in pieces."""


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


NOT_PROTOS = ("text", "json", "table", "tfrecord")
"""Kinds of root that are kept without an index: formats know what to do with them."""


class NotARoot(Exception):
    """The file holds no proto that can be the root of a store, for the reason `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Side(Protocol):
    """Where records go that have to be decoded."""

    @property
    def room(self) -> int:
        """How many bytes it takes."""

    def write(self, data: bytes, /) -> None:
        """Append `data`."""


class SideWriter:
    """Takes decoded records from a thread and gives them to a storage's writer on the loop: `room` bytes at most."""

    def __init__(self, writer: Writer, worker: Worker, room: int) -> None:
        self.sums = _core.BlockSums()
        self.room = room
        self._writer = writer
        self._worker = worker

    @property
    def size(self) -> int:
        """How much has been written."""
        return self._writer.size

    def write(self, data: bytes, /) -> None:
        """Append `data`; `LimitExceeded` when there is no room for it."""
        if self.size + len(data) > self.room:
            raise LimitExceeded(
                f"the file decodes to {self.size + len(data)} bytes or more, and the upload has room for {self.room}"
            )
        self.sums.update(data)
        self._worker.wait_for(self._writer.write(data))


def prepare_raw(source: RangeSource, scan: Scan, types: Types, request: IngestRequest) -> Prepared:
    """The index, which a scan on the way in has made already or makes now by range, and the plan."""
    name = request.type_or(scan.type)
    flat = types.flat(name) if name else None
    if scan.error is not None and scan.type == name:
        raise scan.error
    index = (
        scan.index if scan.index is not None and scan.type == name else _core.index_source([source], None, flat, name)
    )
    plan = _core.Document(_core.Index(index), flat, [source]).plan(request.min_chunk, request.max_chunk)
    return Prepared(name, index, plan.encode(), len(plan), types.of(name) if name else None)


def prepare_found(source: RangeSource, received: Received, types: Types, request: IngestRequest) -> Prepared:
    """The same for a file that has arrived; `NotARoot` where little said that it is a proto, and it does not parse."""
    if not source.size and received.detection.kind == "unknown" and not request.names_a_root:
        raise NotARoot("it is empty")
    scan = received.scan or Scan(None)
    try:
        return prepare_raw(source, scan, types, request)
    except (CorruptModel, LimitExceeded) as error:
        if request.names_a_root or received.detection.confidence > BY_NAME:
            raise
        raise NotARoot(f"{received.detection.why}, and it does not parse as a message: {error}") from error


def check_known(source: RangeSource, received: Received, request: IngestRequest) -> None:
    """`NotARoot` for a file without an index that no format wants as a root, unless the request names one."""
    path, detection = received.info.path, received.detection
    if not request.names_a_root and not formats_of(Model(path, detection.type_name, {path: source}, None)):
        raise NotARoot(f"{detection.why}, and no format knows such a file")


def chunked_of(source: RangeSource, side: Side) -> _core.Chunked:
    """The chunks of a chunked proto, whose records that must be decoded go to `side`; `NotARoot` for other records.

    `LimitExceeded`, before they are decoded, when they are more than `side` takes, or than come of a file of that size.
    """
    most = min(side.room, _DECODED_FREE + _DECODED_RATIO * source.size)
    try:
        return _core.Chunked(source, side, limits=_core.Limits(decoded=1 << 62, held=_DECODED_HELD, side=most))
    except Unsupported as error:
        if type(error) is not Unsupported:
            raise  # the side refuses what it is given: the file is a chunked proto
        raise NotARoot(error.message) from error


def prepare_chunked(
    chunked: _core.Chunked, sources: Sequence[RangeSource], filename: str, types: Types, request: IngestRequest
) -> Prepared:
    """The image of a chunked proto, its index and its plan; `sources` are the file and the side object."""
    name = request.type_or(None if request.type else tell_type(chunked, sources, filename)[0])
    flat = types.flat(name) if name else None
    return _prepare_image(chunked.image(flat, name, sources), sources, name, types, request)


def binary_of(source: RangeSource, type_name: str, types: Types, side: SideWriter) -> None:
    """Write to `side` the bytes that the message of type `type_name` in a text stands for."""
    schema.check_text_size(source.size)
    parse = schema.serialized if source.size <= _TEXT_AT_ONCE else serialized_apart
    side.write(parse(source.read(0, source.size), types.of(type_name)))


def prepare_text(sources: Sequence[RangeSource], type_name: str, types: Types, request: IngestRequest) -> Prepared:
    """The image of a text, which is all of the side object, with index and plan; `sources` as for chunked ones."""
    image = _core.Rope([(1, 0, sources[1].size)] if sources[1].size else [])
    return _prepare_image(image, sources, type_name, types, request)


def _prepare_image(
    image: _core.Rope,
    sources: Sequence[RangeSource],
    name: str | None,
    types: Types,
    request: IngestRequest,
) -> Prepared:
    flat = types.flat(name) if name else None
    index = _core.index_source(sources, image, flat, name)
    plan = _core.Document(_core.Index(index), flat, sources, image).plan(request.min_chunk, request.max_chunk)
    return Prepared(name, index, plan.encode(), len(plan), types.of(name) if name else None, image.encode())
